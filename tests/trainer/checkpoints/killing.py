"""A program that kills itself at every line of file operations, and looks at what is left.

``python -m tests.trainer.checkpoints.killing publish|retention|part|shards|partial FOLDER STEP``: a child process does the work and is killed with SIGKILL
before its line number k, for every STEP-th k until the work ends; after each the run is read. It prints the number of lines.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tests.trainer.checkpoints.hashed_shards import write_full, write_partial
from tests.trainer.checkpoints.job_states import (
    assert_equal,
    checkpoint,
    commit_of,
    cut,
    find_facts,
    names_of,
    publish_all,
    write_parts,
)
from trainer.checkpoints.checkpoint import read_newest, write_checkpoint
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.retention import Retention, apply_retention, newest_part_attempt, remove_leftovers
from trainer.checkpoints.run_files import newest_first
from trainer.checkpoints.shard_manifest import ServerShard, ShardTable
from trainer.checkpoints.shard_name import WrittenShards
from trainer.checkpoints.shards.write_shard import write_shard
from trainer.checkpoints.table_sections import section_name

#: The modules whose lines can leave files in another state.
_TRACED = ("checkpoints/local_run.py", "checkpoints/publish.py", "checkpoints/parts.py", "checkpoints/retention.py",
           "checkpoints/array_files.py", "storage/durable_files.py", "/shutil.py")  # fmt: skip


def kill_before_line(k: int, traced: tuple[str, ...] = _TRACED) -> None:
    """Kill this process before the k-th line of the traced modules."""
    lines = itertools.count()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(traced):
            return None
        if event == "line" and next(lines) == k:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def survive(
    template: Path,
    work: Callable[[Path], object],
    look: Callable[[Path, bool], None],
    step: int,
    traced: tuple[str, ...] = _TRACED,
) -> int:
    """Kill ``work`` on a copy of ``template`` at every ``step``-th line; ``look`` at what is left, and whether the work ended."""
    for k in itertools.count(0, step):
        run = template.with_name("killed")
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(template, run)
        child = os.fork()
        if child == 0:
            kill_before_line(k, traced)
            work(run)
            sys.settrace(None)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        ended = os.WIFEXITED(status)
        assert not ended or os.WEXITSTATUS(status) == 0
        assert ended or os.WTERMSIG(status) == signal.SIGKILL
        look(run, ended)
        if ended:
            return k
    raise AssertionError


def assert_newest(run: Path, *epochs: int) -> int:
    """The newest commit is one of these, whole, and nothing is torn; its epochs."""

    def skipped(reason: str) -> None:
        raise AssertionError(reason)

    found = read_newest(run, on_skip=skipped)
    assert found is not None
    assert found.epochs_done in epochs
    assert_equal(found, checkpoint(found.epochs_done))
    return found.epochs_done


def kill_publish(template: Path, step: int) -> int:
    """The old commit or the new one, and after it the publication can be repeated."""
    publish_all(template, checkpoint(1), 2, 1)
    parts = write_parts(template, checkpoint(2), 2, 2)
    seen = set()

    def work(run: Path) -> None:
        publish(run, commit_of(checkpoint(2), 2), names_of(2), parts, find_facts)

    def look(run: Path, ended: bool) -> None:
        seen.add(assert_newest(run, *([2] if ended else [1, 2])))
        remove_leftovers(run, below_attempt=2)
        work(run)
        assert_newest(run, 2)
        assert not [path for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]

    kills = survive(template, work, look, step)
    assert seen == {1, 2}
    return kills


def kill_part(template: Path, step: int) -> int:
    """A part that was not written whole is no part, and is removed when its attempt was given up."""
    publish_all(template, checkpoint(1), 2, 1)

    def work(run: Path) -> None:
        write_part(run, *cut(checkpoint(2), 0, 2, 2))

    def look(run: Path, ended: bool) -> None:
        assert_newest(run, 1)
        assert (run / "checkpoints" / "parts" / "attempt-000002" / "host-0").exists() >= ended
        remove_leftovers(run, below_attempt=3)
        assert sorted(path.name for path in (run / "checkpoints" / "parts").iterdir()) == ["attempt-000001"]

    return survive(template, work, look, step)


def kill_retention(template: Path, step: int) -> int:
    """The kept commits are whole at every moment, and the next removal completes what a killed one began."""
    for epochs in (1, 2, 3):
        publish_all(template, checkpoint(epochs), 2, epochs)
    write_part(template, *cut(checkpoint(4), 0, 2, 4))  # being written

    def work(run: Path) -> None:
        apply_retention(run, Retention(newest=1, every=2), now_secs=0.0)

    def look(run: Path, ended: bool) -> None:
        assert_newest(run, 3)
        work(run)
        remove_leftovers(run, below_attempt=4)
        found = sorted(path.name for path in (run / "checkpoints").iterdir())
        assert found == [".retention.json", "epoch-000002", "epoch-000003", "parts"]
        attempts = sorted(path.name for path in (run / "checkpoints" / "parts").iterdir())
        assert attempts == ["attempt-000002", "attempt-000003", "attempt-000004"]

    return survive(template, work, look, step)


def write_sharded(run: Path, epochs: int) -> None:
    """What a server and then the trainer write for a checkpoint whose values are its number."""
    shard = ServerShard(newest_part_attempt(run) + 1, 0, 1, epochs, (ShardTable("embedding", "user", 1, 0, 50),))
    columns = {"rows": np.arange(epochs), "weights": np.full((epochs, 2), epochs, np.float32), "slots": np.zeros((epochs, 1), np.float32)}  # fmt: skip
    name = write_shard(str(run), shard, (), {f"embedding/{column}/user": one for column, one in columns.items()})
    write_checkpoint(run, epochs, {"step": epochs}, {}, keep=1, shards=WrittenShards((name,)))


def kill_shards(template: Path, step: int) -> int:
    """The checkpoint before, with its shard, or the new one; shards that no checkpoint names are removed at the next start."""
    write_sharded(template, 1)
    seen = set()

    def look(run: Path, ended: bool) -> None:
        found = read_newest(run, on_skip=_fail)
        assert found is not None
        seen.add(found.epochs_done)
        assert ended <= (found.epochs_done == 2)
        assert (found.arrays["embedding/weights/user"] == found.epochs_done).all()
        remove_leftovers(run)
        attempts = [path.name for path in (run / "checkpoints" / "parts").iterdir()]
        assert len(attempts) == len(newest_first(open_run(run))), "of each checkpoint its own"
        write_sharded(run, 3)
        assert len(list((run / "checkpoints" / "parts").iterdir())) == 1

    kills = survive(template, lambda run: write_sharded(run, 2), look, step)
    assert seen == {1, 2}
    return kills


def kill_partial(template: Path, step: int) -> int:
    """The full shard, or the partial one with it, whole; after another full one neither is there."""
    base, seen = write_full(template, 1), set()
    states = {1: ([1, 2, 3, 4], [1, 1, 1, 1], [9, 5, 0, 0]), 2: ([2, 3, 4, 7], [1, 2, 1, 2], [8, 0, 3, 1])}

    def look(run: Path, ended: bool) -> None:
        found = read_newest(run, on_skip=_fail)
        assert found is not None
        seen.add(found.epochs_done)
        assert ended <= (found.epochs_done == 2)
        ids, values, ages = states[found.epochs_done]
        assert found.arrays["embedding/rows/user"].tolist() == ids
        assert found.arrays["embedding/weights/user"][:, 0].tolist() == values
        assert found.arrays[section_name("embedding", "ages", "user")].tolist() == ages
        remove_leftovers(run)
        attempts = sorted(path.name for path in (run / "checkpoints" / "parts").iterdir())
        assert attempts == ["attempt-000001", "attempt-000002"][: found.epochs_done], (
            "the base of a kept checkpoint stays"
        )
        write_full(run, 3)
        assert len(list((run / "checkpoints" / "parts").iterdir())) == 1

    kills = survive(template, lambda run: write_partial(run, base), look, step)
    assert seen == {1, 2}
    return kills


def _fail(reason: str) -> None:
    raise AssertionError(reason)


if __name__ == "__main__":
    kinds = {
        "publish": kill_publish,
        "part": kill_part,
        "retention": kill_retention,
        "shards": kill_shards,
        "partial": kill_partial,
    }
    print(kinds[sys.argv[1]](Path(sys.argv[2]) / "template", int(sys.argv[3])))
