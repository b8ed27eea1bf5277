"""A history comes back from its bytes; other bytes are refused."""

from __future__ import annotations

import hashlib
import json
import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.run.history.histories import HEADS, history_of
from trainer.errors import TornCheckpoint
from trainer.model.heads import BINARY
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.figures import figures
from trainer.run.history.history_file import history_bytes, history_of_bytes
from trainer.run.history.run_history import MOST_COMMITS, MOST_WINDOWS, RunHistory

HISTORY = history_of(BINARY, [20, 50, 33])
BYTES = history_bytes(HISTORY)
BEGIN = 22 + 4


def sealed(content: bytes) -> bytes:
    """With the digest that the bytes should have: what a hostile writer would write."""
    return content + hashlib.sha256(content).digest()


def unpacked(data: bytes) -> tuple[dict, np.ndarray]:
    length = int.from_bytes(data[22:BEGIN], "little")
    header = json.loads(data[BEGIN : BEGIN + length])
    rows = np.frombuffer(zlib.decompress(data[BEGIN + length : -32]), "<f8")
    return header, rows.copy()


def packed(header: dict, rows: np.ndarray) -> bytes:
    text = json.dumps(header).encode()
    return sealed(BYTES[:22] + len(text).to_bytes(4, "little") + text + zlib.compress(rows.tobytes()))


@settings(max_examples=scaled(50))
@given(st.lists(st.integers(1, 70), max_size=5), st.sampled_from(HEADS), st.integers(0, 2**31))
def test_a_history_comes_back(commits, head, seed):
    history = history_of(head, commits, seed=seed)
    data = history_bytes(history)
    found = history_of_bytes(data, "here")
    assert (found.layout, found.first_step, found.window_steps) == (history.layout, 0, 16)
    assert found.windows.tobytes() == history.windows.tobytes()
    assert found.commits.tobytes() == history.commits.tobytes()
    assert history_bytes(found) == data


def test_the_largest_file_of_a_label_is_small():
    rng = np.random.default_rng(0)
    layout = HistoryLayout.of(BINARY.each)
    rows = rng.random((MOST_WINDOWS + MOST_COMMITS, layout.width)) * 1e6
    history = RunHistory(layout, 0, 16, rows[:MOST_WINDOWS], rows[MOST_WINDOWS:])
    assert len(history_bytes(history)) < 620_000  # of random numbers, which do not deflate


@settings(max_examples=scaled(300))
@given(st.integers(0, 2**31))
def test_damaged_bytes_are_refused(seed):
    changed = mutated(BYTES, random.Random(seed))
    if changed != BYTES:
        with pytest.raises(TornCheckpoint):
            history_of_bytes(changed, "here")


@settings(max_examples=scaled(300))
@given(st.integers(0, 2**31), st.booleans())
def test_hostile_bytes_are_refused_or_give_a_history(seed, of_header):
    """With a digest that fits: whatever is accepted has figures."""
    rng = random.Random(seed)
    length = int.from_bytes(BYTES[22:BEGIN], "little")
    if of_header:
        header = mutated(BYTES[BEGIN : BEGIN + length], rng, [b"99999999999", b"-1", b"null", b'"x"', b"[]", b"1e9"])
        content = BYTES[:22] + len(header).to_bytes(4, "little") + header + BYTES[BEGIN + length : -32]
    else:
        rows = mutated(zlib.decompress(BYTES[BEGIN + length : -32]), rng)
        content = BYTES[: BEGIN + length] + zlib.compress(rows)
    try:
        found = history_of_bytes(sealed(content), "here")
    except TornCheckpoint:
        return
    assert len(found.windows) <= MOST_WINDOWS
    with np.errstate(all="raise", under="ignore"):
        figures(found.layout, found.windows)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"windows": 2049}, "windows"),
        ({"window_steps": 24}, "power of two"),
        ({"window_steps": 8}, "window_steps"),
        ({"first_step": 3}, "each step once"),
        ({"labels": []}, "each label once"),
        ({"labels": [{"name": "", "task": "binary"}] * 2}, "each label once"),
        ({"labels": [{"name": "", "task": "poetry"}]}, "task"),
        ({"commits": 2}, "size"),
        ({"windows": -1}, "windows"),
    ],
)
def test_a_wrong_header_is_refused(change, says):
    header, rows = unpacked(BYTES)
    with pytest.raises(TornCheckpoint, match=says):
        history_of_bytes(packed({**header, **change}, rows), "here")


@pytest.mark.parametrize(
    ("label", "name", "value", "says"),
    [
        (None, "secs", -1.0, "from 0 on"),
        (None, "secs", np.nan, "finite"),
        (None, "ended_at", np.inf, "finite"),
        (None, "ended_at", 1e13, "seconds"),
        (None, "steps", 15.0, "each step once"),
        (None, "epoch", 0.5, "whole"),
        (None, "idle_units", 1.0, "at most hidden_units"),
        ("", "positives", 1e9, "at most events"),
        ("", "events", 1e9, "at most all events"),
        ("", "ranked", 1e18, "at most pairs"),
    ],
)
def test_a_wrong_figure_is_refused(label, name, value, says):
    header, rows = unpacked(BYTES)
    width, count = HISTORY.layout.width, len(HISTORY.windows) + len(HISTORY.commits)
    table = rows.reshape(width, count)
    table[HISTORY.layout.places[label, name], 1] = value
    with pytest.raises(TornCheckpoint, match=says):
        history_of_bytes(packed(header, table), "here")


def test_windows_and_commits_must_end_together():
    header, _ = unpacked(BYTES)
    other = history_of(BINARY, [20, 50])
    rows = np.concatenate([HISTORY.windows, other.commits]).T
    with pytest.raises(TornCheckpoint, match="same last step"):
        history_of_bytes(packed({**header, "commits": 2}, np.ascontiguousarray(rows)), "here")


def test_a_bomb_is_not_inflated():
    header, _ = unpacked(BYTES)
    with pytest.raises(TornCheckpoint, match="size"):
        history_of_bytes(packed(header, np.zeros(1 << 24)), "here")
