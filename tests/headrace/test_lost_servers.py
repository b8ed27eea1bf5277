"""``headrace train --servers`` when the machine of a server is lost with its rows: training goes on from the newest checkpoint."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.headrace.test_served_training import OPTIONS, assert_equal_runs, served  # noqa: F401 (a fixture)
from tests.support.processes import PATIENCE_SECS
from tests.support.server_process import ServerProcess

_LOOK_SECS = 0.01


@contextmanager
def server_processes(folder: Path, count: int, token_file: str = ""):
    with ExitStack() as stack:
        made = []
        for k in range(count):
            memory = folder / f"memory-{k}"
            memory.mkdir()
            made.append(ServerProcess(memory, token_file))
            stack.callback(made[-1].close)
        for one in made:
            one.start()
        yield made


class Losses:
    """Loses one server after the other: each once a run has a checkpoint that it had not before."""

    def __init__(self, servers: list[ServerProcess], run: Path, most: int) -> None:
        self._servers, self._checkpoints, self._most = servers, run / "checkpoints", most
        self._ends, self.made = threading.Event(), 0
        self._thread = threading.Thread(target=self._lose)

    def _lose(self) -> None:
        before = ""
        while self.made < self._most and not self._ends.wait(_LOOK_SECS):
            newest = max((path.name for path in self._checkpoints.glob("epoch-*")), default="")
            if newest == before:
                continue
            before = newest
            lost = self._servers[self.made % len(self._servers)]
            lost.lose()
            lost.start()
            self.made += 1

    def __enter__(self) -> Losses:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_SECS)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [0, 2], ids=["in one process", "in a job"])
def test_training_survives_lost_machines(served, tmp_path, hosts):  # noqa: F811
    """More of them than may follow each other without a new checkpoint."""
    served.options.write_text(json.dumps({**OPTIONS, "passes": 40}))
    job = ("--hosts", hosts, "--readers", 1) if hosts else ()
    arguments = ("train", "first", "--config", served.options, *job, "--json")
    served(*arguments, "--run-dir", tmp_path / "alone")
    run = tmp_path / "served"
    with server_processes(tmp_path, 2) as servers, Losses(servers, run, 6) as losses:
        addresses = ",".join(str(one.address) for one in servers)
        report = served(*arguments, "--run-dir", run, "--servers", addresses).json
    assert losses.made == 6
    assert report["exact"] is True
    assert_equal_runs(tmp_path / "alone", run)
