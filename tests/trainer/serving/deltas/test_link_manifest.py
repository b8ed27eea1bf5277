"""Manifests of links, of states and of rows: what was written is read, anything else is one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.checkpoints.test_commit_documents import TOKENS
from tests.trainer.checkpoints.test_manifest import every_change, signed
from tests.trainer.serving.deltas.histories import history, run_files
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.deltas.link_manifest import MANIFEST, LinkManifest
from trainer.serving.deltas.row_state import STATE, RowState
from trainer.serving.deltas.served_rows import SERVED, ServedRows


class Read:
    """A kind of manifest: the bytes that were written, and how they are read and written again."""

    def __init__(self, data: bytes, read: Any) -> None:
        self.data, self.read = data, read


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[Read]:
    folder = tmp_path_factory.mktemp("manifests")
    commits = history(12, 2)
    commits.commit(folder / "run", 1)
    export_full(run_files(folder / "run"), folder / "chain", quantize="int8")
    commits.commit(folder / "run", 2)
    delta = export_delta(run_files(folder / "run"), folder / "chain")
    assert delta is not None
    apply_chain(folder / "chain", folder / "target")
    (rows,) = (folder / "chain").glob(".rows-*")
    links = [
        Read((folder / "chain" / name / MANIFEST).read_bytes(), lambda data: LinkManifest.from_bytes(data, MANIFEST))
        for name in ("000000-full", "000001-delta")
    ]
    return [
        *links,
        Read((rows / STATE).read_bytes(), lambda data: RowState.from_bytes(data, STATE)),
        Read((folder / "target" / SERVED).read_bytes(), lambda data: ServedRows.from_bytes(data, Path("target"))),
    ]


def test_manifests_round_trip(kinds):
    for one in kinds:
        assert one.read(one.data).to_bytes() == one.data


def test_mutated_bytes_are_torn_or_unchanged(kinds):
    random, torn = Random(1), 0
    for one in kinds:
        for _ in range(scaled(1500)):
            other = mutated(one.data, random, TOKENS)
            try:
                one.read(other)
            except TornCheckpoint:
                torn += 1
            else:
                assert other == one.data
    assert torn > scaled(4 * 1400)


@pytest.mark.medium
def test_other_values_with_a_valid_digest_are_torn_or_of_the_same_kind(kinds):
    for one in kinds:
        body = json.loads(one.data)
        del body["sha256"]
        made = torn = 0
        for other in every_change(body):
            made += 1
            data = signed(other)
            try:
                found = one.read(data)
            except (TornCheckpoint, OtherFormat):
                torn += 1
            else:
                assert one.read(found.to_bytes()) == found
        assert torn > 0.6 * made > 50


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "full"},
        {"since": None},
        {"number": 0},
        {"previous": ""},
        {"number": -1},
        {"extra": 1},
        {"format": None},
        {"model": "A" * 64},
        {"commit": {"epochs": 2, "step": 20}},
    ],
)
def test_links_that_contradict_themselves_are_torn(kinds, change):
    body = json.loads(kinds[1].data)
    del body["sha256"]
    with pytest.raises(TornCheckpoint):
        kinds[1].read(signed({**body, **change}))


def test_a_later_format_is_named(kinds):
    for one in kinds:
        body = json.loads(one.data)
        del body["sha256"]
        with pytest.raises(OtherFormat, match="format that this release reads"):
            one.read(signed({**body, "format": body["format"].replace("/1", "/2")}))
