"""Every commit of a training becomes a link, whatever is slow, fails or is killed."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.serving.deltas.histories import History, history, run_files, served_arrays, wanted_arrays
from trainer.checkpoints.run_files import newest_first
from trainer.errors import CheckpointNotWritten, LinkRefused, TornCheckpoint
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas import commit_exporter
from trainer.serving.deltas.chain_files import read_chain
from trainer.serving.deltas.commit_exporter import CommitExporter, exporting
from trainer.serving.deltas.local_chain import LocalChain
from trainer.serving.deltas.served_rows import open_served
from trainer.serving.deltas.verify_chain import verify_chain
from transforms.errors import Busy, InputError

COMMITS = history(80, 4)
OTHERS = History(history(81, 4).states)


def exported(run: Path, chain: Path, **options: Any) -> Any:
    return exporting(str(run), chain, holds=run, **options)


def wait_for(holds: Any) -> None:
    end = time.monotonic() + PATIENCE_SECS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def links(chain: Path) -> list[tuple[str, int]]:
    return [(one.manifest.name, one.manifest.commit.epochs) for one in read_chain(chain)]


def check_served(chain: Path, epochs: int, commits: History = COMMITS) -> None:
    """The chain is intact, and a server that applies it has the weights of the commit."""
    assert [one for one in verify_chain(chain) if one.problem] == []
    target = chain.with_name(f"{chain.name}-served")
    apply_chain(chain, target)
    state = open_served(target)
    assert state is not None
    assert served_arrays(state) == wanted_arrays(commits.states[epochs - 1])


@pytest.mark.parametrize("hosts", [0, 2])
def test_each_commit_becomes_a_link(tmp_path: Path, hosts: int) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    with exported(run, chain) as exporter:
        for epochs in (1, 2, 3):
            COMMITS.commit(run, epochs, keep=1, hosts=hosts)
            exporter.look()
            wait_for(lambda count=epochs: chain.exists() and len(list(chain.glob("0*"))) == count)
        found = exporter.finish()
    assert links(chain) == [("000000-full", 1), ("000001-delta", 2), ("000002-delta", 3)]
    assert (found.links, found.problem) == (3, None)
    assert found.newest is not None
    assert found.newest.manifest.name == "000002-delta"
    check_served(chain, 3)


def test_the_end_of_training_writes_the_newest_commit_although_nobody_looked(tmp_path: Path) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    with exported(run, chain) as exporter:
        COMMITS.commit(run, 1)
        COMMITS.commit(run, 2)
        assert exporter.finish().newest is not None
    assert links(chain)[-1][1] == 2
    with exported(run, chain) as exporter:
        assert exporter.finish().links == 0


def test_a_chain_that_missed_commits_catches_up_with_one_delta_at_once(tmp_path: Path) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    COMMITS.commit(run, 1, keep=1)
    with exported(run, chain) as exporter:
        exporter.finish()
    for epochs in (2, 3, 4):
        COMMITS.commit(run, epochs, keep=1)
    with exported(run, chain):
        wait_for(lambda: (chain / "000001-delta").exists())
    assert links(chain) == [("000000-full", 1), ("000001-delta", 4)]
    check_served(chain, 4)


@contextmanager
def slow_exports(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Exports wait, with their commit open, from the first event to the second."""
    begun, goes_on = threading.Event(), threading.Event()
    publish = commit_exporter.export_next

    def slow(files: Any, chain: Any, before: Any, *, on_bytes: Any, **options: Any) -> Any:
        def wait(done: int, total: int) -> None:
            begun.set()
            assert goes_on.wait(PATIENCE_SECS)
            on_bytes(done, total)

        return publish(files, chain, before, on_bytes=wait, **options)

    monkeypatch.setattr(commit_exporter, "export_next", slow)
    try:
        yield begun, goes_on
    finally:
        goes_on.set()


def test_a_slow_link_delays_no_commit_and_its_commit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run keeps one commit; the link reads the first one while two more are written."""
    run, chain = tmp_path / "run", tmp_path / "chain"
    COMMITS.commit(run, 1, keep=1)
    with slow_exports(monkeypatch) as (begun, goes_on), exported(run, chain) as exporter:
        assert begun.wait(PATIENCE_SECS)
        for epochs in (2, 3):
            COMMITS.commit(run, epochs, keep=1)
            exporter.look()
        assert newest_first(run_files(run)) == ["epoch-000003", "epoch-000001"]
        goes_on.set()
        exporter.finish()
    assert links(chain) == [("000000-full", 1), ("000001-delta", 3)]
    check_served(chain, 3)


def test_what_ends_the_process_does_not_wait_for_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    COMMITS.commit(run, 1)

    def interrupt() -> None:
        with slow_exports(monkeypatch) as (begun, goes_on), exported(run, chain):
            assert begun.wait(PATIENCE_SECS)
            threading.Timer(0.1, goes_on.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert [path.name for path in chain.iterdir()] == ["lock"]


def test_an_error_of_training_still_writes_its_last_commit(tmp_path: Path) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"

    def train() -> None:
        with exported(run, chain):
            COMMITS.commit(run, 1)
            raise InputError("training must converge")

    with pytest.raises(InputError):
        train()
    assert links(chain) == [("000000-full", 1)]


def test_a_run_that_went_back_adds_a_full_snapshot_and_says_so(tmp_path: Path) -> None:
    run, chain, said = tmp_path / "run", tmp_path / "chain", []
    for epochs in (1, 2, 3):
        COMMITS.commit(run, epochs)
    with exported(run, chain) as exporter:
        exporter.finish()
    shutil.rmtree(run)
    OTHERS.commit(run, 1)
    OTHERS.commit(run, 2)
    with exported(run, chain, tell=said.append) as exporter:
        exporter.finish()
        OTHERS.commit(run, 3)
    with exported(run, chain) as exporter:
        exporter.finish()
    assert links(chain) == [("000000-full", 3), ("000001-full", 2), ("000002-delta", 3)]
    assert said == [f"{chain}/000001-full is a full snapshot: no delta could be computed from 000000-full"]
    check_served(chain, 3, OTHERS)


def test_a_chain_without_the_rows_of_its_newest_link_gets_a_full_snapshot(tmp_path: Path) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    COMMITS.commit(run, 1, keep=1)
    with exported(run, chain) as exporter:
        exporter.finish()
    shutil.rmtree(next(chain.glob(".rows-*")))
    COMMITS.commit(run, 2, keep=1)
    with exported(run, chain) as exporter:
        exporter.finish()
    assert links(chain) == [("000000-full", 1), ("000001-full", 2)]


def test_an_export_that_fails_is_said_once_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, chain, said = tmp_path / "run", tmp_path / "chain", []
    failures = [CheckpointNotWritten("the disk is full") for _ in range(3)]
    publish = commit_exporter.export_next

    def fail(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return publish(*arguments, **options)

    monkeypatch.setattr(commit_exporter, "export_next", fail)
    COMMITS.commit(run, 1)
    with exported(run, chain, tell=said.append) as exporter:
        while failures:
            exporter.look()
            time.sleep(0.01)
        wait_for(lambda: len(said) == 2 or exporter.look())
        assert exporter.finish().problem is None
    assert [one.partition(",")[0] for one in said] == [f"a link of {chain} was not written", f"links of {chain} are written again"]  # fmt: skip
    assert links(chain) == [("000000-full", 1)]


def test_a_link_that_cannot_be_written_is_the_problem_at_the_end(tmp_path: Path) -> None:
    run, chain, said = tmp_path / "run", tmp_path / "chain", []
    COMMITS.commit(run, 1)
    with exported(run, chain, tell=said.append) as exporter:
        exporter.finish()
    COMMITS.commit(run, 2)
    (next(chain.glob(".rows-*")) / "table-0000.ids").write_bytes(b"damaged!")
    with exported(run, chain, tell=said.append) as exporter:
        found = exporter.finish()
    assert isinstance(found.problem, TornCheckpoint)
    assert len(said) == 1
    assert links(chain) == [("000000-full", 1)]


def test_a_chain_that_does_not_fit_is_refused_before_training(tmp_path: Path) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    COMMITS.commit(run, 1)
    with exported(run, chain) as exporter:
        exporter.finish()
        with pytest.raises(Busy, match="chain folder"), exported(run, chain):
            pass
    with pytest.raises(LinkRefused, match="needs an empty chain"), exported(tmp_path / "new", chain):
        pass
    with pytest.raises(InputError, match="quantization"), exported(run, chain, quantize="int4"):
        pass
    values = chain / "000000-full" / "table-0000.values"
    whole = values.read_bytes()
    values.write_bytes(whole[:-1])
    with pytest.raises(TornCheckpoint, match="the size that was written"), exported(run, chain):
        pass
    values.write_bytes(whole)
    manifest = chain / "000000-full" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"full"', b'"fulL"'))
    with pytest.raises(TornCheckpoint), exported(run, chain):
        pass


def test_the_chain_of_another_model_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    COMMITS.commit(run, 1)
    with exported(run, chain) as exporter:
        exporter.finish()
    monkeypatch.setattr(commit_exporter, "model_digest_of", lambda document: "0" * 64)
    with pytest.raises(LinkRefused, match="must belong to the model of the run"), exported(run, chain):
        pass


PROGRAM = """
import sys
from pathlib import Path
from tests.trainer.serving.deltas.histories import history
from trainer.checkpoints.checkpoint import epochs_committed
from trainer.serving.deltas.commit_exporter import exporting
run, chain, commits = Path(sys.argv[1]), Path(sys.argv[2]), history(82, int(sys.argv[3]))
with exporting(str(run), chain, holds=run, tell=print) as exporter:
    print("began", flush=True)
    for epochs in range(epochs_committed(run) + 1, len(commits.states) + 1):
        commits.commit(run, epochs, keep=1)
        exporter.look()
    assert exporter.finish().problem is None
"""


@pytest.mark.slow
def test_killed_processes_leave_a_chain_that_the_next_one_goes_on_with(tmp_path: Path) -> None:
    run, chain, draw, kills = tmp_path / "run", tmp_path / "chain", random.Random(5), 0
    command = [sys.executable, "-c", PROGRAM, str(run), str(chain), "4"]
    for _ in range(8):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "began\n"
            time.sleep(draw.uniform(0.0, 0.25))
            process.kill()
        kills += process.returncode != 0
        if any(chain.glob("0*")):
            assert [one for one in verify_chain(chain) if one.problem] == []
        if process.returncode == 0:
            break
    subprocess.run(command, check=True, timeout=PATIENCE_SECS)
    assert kills
    check_served(chain, 4, history(82, 4))


def test_an_exporter_may_be_looked_at_by_any_thread(tmp_path: Path) -> None:
    run, chain = tmp_path / "run", tmp_path / "chain"
    chain.mkdir()
    COMMITS.commit(run, 1)
    exporter = CommitExporter(run_files(run), run, LocalChain(chain), None)
    threads = [threading.Thread(target=exporter.look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert exporter.finish().links == 1
