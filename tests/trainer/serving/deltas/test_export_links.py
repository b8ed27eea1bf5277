"""A chain holds what changed from commit to commit, and replaying it gives each commit's weights, bit for bit."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.serving.deltas.histories import (
    TABLES,
    History,
    content,
    history,
    run_files,
    served_arrays,
    wanted_arrays,
)
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.read import open_commit
from trainer.checkpoints.reshard import reshard_commit
from trainer.errors import ConfigError, LinkRefused, TornCheckpoint
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.chain import Link
from trainer.serving.deltas.chain_files import read_chain, state_folder
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.deltas.link_tables import removed_stream, set_stream
from trainer.serving.deltas.row_values import QUANTIZE
from trainer.serving.deltas.served_rows import open_served
from trainer.serving.deltas.verify_chain import verify_chain
from transforms.errors import InputError, NotFound

WINDOWS = st.sampled_from([1, 200, 1000, 1 << 20])


def ids_of(link: Link, position: int) -> tuple[set[int], set[int]]:
    """The ids that a link sets and removes in a table."""
    return tuple(
        {int(key) for piece in stream(link, position, 64).pieces for key in piece.ids}
        for stream in (set_stream, removed_stream)
    )  # type: ignore[return-value]


def assert_served(target: Path, commits: History, epochs: int) -> None:
    state = open_served(target)
    assert state is not None
    assert state.position.epochs == epochs
    assert served_arrays(state) == wanted_arrays(commits.states[epochs - 1])


@pytest.mark.slow
@settings(max_examples=scaled(14))
@given(st.integers(0, 2**32), st.integers(0, 3), WINDOWS, WINDOWS, st.data())
def test_any_replay_gives_the_weights_of_each_commit(
    tmp_path_factory: pytest.TempPathFactory, seed: int, hosts: int, window: int, other: int, data: st.DataObject
) -> None:
    folder, commits = tmp_path_factory.mktemp("replay"), history(seed, 4)
    run, chain, target = folder / "run", folder / "chain", folder / "target"
    exported = []
    for epochs in range(1, 5):
        commits.commit(run, epochs, keep=1, hosts=hosts)
        if epochs == 1 or data.draw(st.sampled_from([True, False, False])):
            exported.append((epochs, export_full(run_files(run), chain, window_bytes=window)))
        elif data.draw(st.booleans()):
            link = export_delta(run_files(run), chain, window_bytes=window)
            assert link is not None
            for position, (kind, table, _) in enumerate(TABLES):
                assert ids_of(link, position) == commits.changed(exported[-1][0], epochs, kind, table)
            exported.append((epochs, link))
        if data.draw(st.booleans()):
            apply_chain(chain, target, window_bytes=other)
            assert_served(target, commits, exported[-1][0])
    assert [one for one in verify_chain(chain) if one.problem] == []
    assert not list(chain.glob(".tmp-*"))
    for epochs, link in exported:  # from the beginning, at once and link by link
        apply_chain(chain, folder / f"at-{epochs}", until=link.manifest.number, window_bytes=other)
        assert_served(folder / f"at-{epochs}", commits, epochs)
        apply_chain(link.place, folder / "each", window_bytes=window)
        assert_served(folder / "each", commits, epochs)
    shutil.rmtree(folder)


def test_a_delta_holds_only_what_changed_and_slots_change_nothing(tmp_path):
    commits = history(3, 1)
    same = History((commits.states[0], {**commits.states[0], "embedding/slots/user": commits.states[0]["embedding/slots/user"] + 1}))  # fmt: skip
    for epochs in (1, 2):
        same.commit(tmp_path / "run", epochs)
        link = export_full(run_files(tmp_path / "run"), tmp_path / "chain") if epochs == 1 else export_delta(run_files(tmp_path / "run"), tmp_path / "chain")  # fmt: skip
    assert link is not None
    assert [(one.rows, one.removed) for one in link.manifest.tables] == [(0, 0)] * 3
    assert export_delta(run_files(tmp_path / "run"), tmp_path / "chain") is None


def test_equal_commits_give_equal_links(tmp_path):
    commits = history(4, 3)
    for name, hosts in (("one", 0), ("three", 3)):
        for epochs in (1, 2, 3):
            commits.commit(tmp_path / "run", epochs, keep=1, hosts=0)
            export = export_full if epochs == 1 else export_delta
            export(run_files(tmp_path / "run"), tmp_path / name, window_bytes=1 + 999 * hosts)
        shutil.rmtree(tmp_path / "run")
    assert content(tmp_path / "one") == content(tmp_path / "three")


def test_a_commit_by_a_plan_with_slices_of_columns_gives_the_same_rows(tmp_path):
    commits = history(5, 2, most_id=120)
    for epochs in (1, 2):
        commits.commit(tmp_path / "run", epochs)
    plan = PartitionPlan(3, (
        TablePlan("user", 120, 6, (Slice(0, 4, (0, 2)), Slice(4, 2, (1,)))),
        TablePlan("words", 120, 2, (Slice(0, 2, (2, 1), (50, 120)),)),
    ))  # fmt: skip
    files = run_files(tmp_path / "run")
    reshard_commit(files, open_commit(files, "epoch-000002"), plan, tmp_path / "planned" / "checkpoints")
    planned = LocalRun(tmp_path / "planned" / "checkpoints")
    links = [export_full(one, tmp_path / name) for one, name in ((files, "alone"), (planned, "by-plan"))]
    assert links[0].manifest.tables == links[1].manifest.tables


def test_the_commit_before_takes_the_place_of_digests_that_were_lost(tmp_path):
    commits, run, chain = history(6, 3), tmp_path / "run", tmp_path / "chain"
    commits.commit(run, 1)
    first = export_full(run_files(run), chain)
    commits.commit(run, 2)
    shutil.copytree(chain, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / state_folder(first.hash))
    links = [export_delta(run_files(run), folder) for folder in (chain, tmp_path / "copy")]
    assert links[0].manifest == links[1].manifest
    assert content(chain) == content(tmp_path / "copy")
    shutil.rmtree(chain / state_folder(links[0].hash))
    commits.commit(run, 3, keep=1)
    with pytest.raises(NotFound, match="needs the rows of the newest link"):
        export_delta(run_files(run), chain)
    assert export_full(run_files(run), chain).manifest.number == 2


def test_a_chain_may_begin_at_a_commit_of_the_run(tmp_path):
    commits, run, chain = history(7, 3), tmp_path / "run", tmp_path / "chain"
    for epochs in (1, 2):
        commits.commit(run, epochs)
    with pytest.raises(InputError, match="must begin with a full snapshot"):
        export_delta(run_files(run), chain)
    with pytest.raises(InputError, match="before the newest"):
        export_delta(run_files(run), chain, since=2)
    with pytest.raises(NotFound, match="checkpoint of this number"):
        export_delta(run_files(run), chain, since=0)
    link = export_delta(run_files(run), chain, since=1)
    assert (link.manifest.number, link.manifest.since.epochs) == (0, 1)
    commits.commit(run, 3)
    with pytest.raises(InputError, match="at the newest link"):
        export_delta(run_files(run), chain, since=1)
    assert export_delta(run_files(run), chain, since=2).manifest.previous == link.hash
    with pytest.raises(LinkRefused, match="begin with a full snapshot"):
        apply_chain(chain, tmp_path / "target")


def test_runs_that_went_back_and_other_models_are_refused(tmp_path):
    commits, run, chain = history(8, 3), tmp_path / "run", tmp_path / "chain"
    for epochs in (1, 2):
        commits.commit(run, epochs)
    export_full(run_files(run), chain)
    shutil.rmtree(run / "checkpoints" / "epoch-000002")
    with pytest.raises(LinkRefused, match="newer than the newest link"):
        export_delta(run_files(run), chain)
    assert export_full(run_files(run), chain).manifest.commit.epochs == 1
    other = commits.checkpoint(3)
    document = {**other.document, "identity": {**other.document["identity"], "label": "bought"}}
    write_checkpoint(tmp_path / "other", 3, document, other.arrays, keep=1)
    for export in (export_full, export_delta):
        with pytest.raises(LinkRefused, match="model of its chain"):
            export(run_files(tmp_path / "other"), chain)
    assert len(read_chain(chain)) == 2


def test_a_damaged_commit_gives_no_link(tmp_path):
    commits, run, chain = history(9, 2, rows=200), tmp_path / "run", tmp_path / "chain"
    commits.commit(run, 1)
    export_full(run_files(run), chain)
    before = content(chain)
    commits.commit(run, 2)
    for path in sorted((run / "checkpoints" / "epoch-000002").glob("array-*.npy")):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        is_read = commits.states[1] and b"slots" not in data  # every array but those that are not served
        try:
            export_delta(run_files(run), chain)
        except TornCheckpoint as error:
            assert path.name in error.where  # noqa: PT017
            assert content(chain) == before
        else:
            assert is_read
            shutil.rmtree(chain)
            export_full(run_files(run), chain, epochs=1)
            before = content(chain)
        path.write_bytes(data)


@pytest.mark.parametrize("quantize", QUANTIZE)
def test_quantized_links_give_exactly_the_stored_weights(tmp_path, quantize):
    commits, run, chain = history(10, 3), tmp_path / "run", tmp_path / "chain"
    for epochs in (1, 2, 3):
        commits.commit(run, epochs, keep=1)
        link = export_full(run_files(run), chain, quantize=quantize) if epochs == 1 else export_delta(run_files(run), chain)  # fmt: skip
        for folder in ("stepwise", f"at-{epochs}"):
            apply_chain(chain, tmp_path / folder)
        states = [open_served(tmp_path / folder) for folder in ("stepwise", f"at-{epochs}")]
        assert served_arrays(states[0]) == served_arrays(states[1])
        for table in link.manifest.tables:
            _, weights = states[0].table(table.kind, table.table)
            exact = commits.states[epochs - 1][f"{table.kind}/weights/{table.table}"]
            error = np.abs(weights.astype(np.float64) - exact).max(initial=0.0)
            most = max(one.largest_error for each in read_chain(chain) for one in each.manifest.tables if one.table == table.table and one.kind == table.kind)  # fmt: skip
            assert error <= most
            assert (error > 0) == (quantize != "none")
    encodings = {"none": ["float32"] * 3, "fp16": ["float16"] * 3, "int8": ["int8", "float16", "float16"]}
    assert [one.encoding for one in link.manifest.tables] == encodings[quantize]


def test_an_unknown_quantization_is_refused(tmp_path):
    history(1, 1).commit(tmp_path / "run", 1)
    with pytest.raises(ConfigError, match="quantization must be a known one"):
        export_full(run_files(tmp_path / "run"), tmp_path / "chain", quantize="int4")


def test_memory_is_that_of_windows_not_of_the_table(tmp_path):
    rows, columns = 300_000, 6
    states = []
    for epoch in (1, 2):
        arrays = dict(history(11, 1).states[0])
        draw = np.random.default_rng(epoch)
        arrays["embedding/rows/user"] = np.arange(rows, dtype=np.int64)
        arrays["embedding/weights/user"] = draw.normal(size=(rows, columns)).astype(np.float32)
        arrays["embedding/slots/user"] = np.zeros((rows, 0), np.float32)
        states.append(arrays)
    commits = History(tuple(states))
    peaks = []
    for window in (1 << 18, 1 << 24):
        run, chain = tmp_path / f"run-{window}", tmp_path / f"chain-{window}"
        commits.commit(run, 1)
        export_full(run_files(run), chain, window_bytes=window)
        commits.commit(run, 2)
        tracemalloc.start()
        export_delta(run_files(run), chain, window_bytes=window)
        apply_chain(chain, tmp_path / f"target-{window}", window_bytes=window)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert_served(tmp_path / f"target-{window}", commits, 2)
    table_bytes = rows * (8 + 4 * columns)
    assert peaks[0] < table_bytes // 2 < peaks[1]
