"""Chains in a bucket whose server fails, refuses or answers with other bytes, and exporters that are killed at every request."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fault_proxy import Action, Fault, Proxy, proxied
from tests.support.gcs_server import GcsServer
from tests.support.processes import PATIENCE_SECS
from tests.trainer.serving.deltas.exporting_process import Exporters
from tests.trainer.serving.deltas.histories import wanted_arrays
from tests.trainer.serving.deltas.test_bucket_chain import (
    COMMITS,
    folder_content,
    named_as_in_a_folder,
    objects,
    problems,
    run_of,
    served,
    write_links,
)
from trainer.errors import CheckpointNotWritten, TornCheckpoint
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.chain_files import read_chain, state_folder
from trainer.serving.deltas.export_links import export_delta
from trainer.serving.deltas.verify_chain import verify_chain
from transforms.errors import HeadraceError, StorageError

WRITE = r"^(POST /upload|DELETE)"
READ = r"alt=media"
ALWAYS = range(1, 10_000)


@pytest.fixture
def proxy(gcs_server: GcsServer) -> Iterator[Proxy]:
    with proxied(gcs_server.address) as proxy:
        yield proxy


class Places:
    """A chain, as an impatient client, a usual one and one without the proxy see it."""

    def __init__(self, server: GcsServer, proxy: Proxy) -> None:
        bucket = server.bucket()
        self.direct = server.home(bucket, "chain")
        self.usual = GcsServer(proxy.address).home(bucket, "chain")
        self.impatient = GcsServer(proxy.address).home(bucket, "chain", retry_limit_seconds=0.2)


@pytest.fixture
def places(gcs_server: GcsServer, proxy: Proxy) -> Places:
    return Places(gcs_server, proxy)


@pytest.mark.medium
@pytest.mark.parametrize("action", [503, "refuse", "lose", "tear", "flip", "slow"])
def test_a_fault_of_writing_that_passes_delays_the_link_only(places: Places, proxy: Proxy, tmp_path: Path, action: Action) -> None:  # fmt: skip
    for one in (places.direct, tmp_path / "chain"):
        write_links(tmp_path, one, 1)
    proxy.faults[:] = [Fault(WRITE, action, (2, 9, 17))]
    write_links(tmp_path, places.usual, 2)
    write_links(tmp_path, tmp_path / "chain", 2)
    assert proxy.faults[0].seen >= 17
    assert named_as_in_a_folder(places.direct) == folder_content(tmp_path / "chain")
    assert problems(places.direct) == []


@pytest.mark.parametrize("action", [503, 403, "refuse"])
@pytest.mark.parametrize("first", [1, 13, 20])
def test_a_bucket_that_takes_no_more_objects_has_the_link_before(places: Places, proxy: Proxy, tmp_path: Path, action: Action, first: int) -> None:  # fmt: skip
    """From the first array, the first of the rows or the manifest on."""
    write_links(tmp_path, places.direct, 1)
    proxy.faults[:] = [Fault(WRITE, action, range(first, 10_000))]
    with pytest.raises(CheckpointNotWritten, match="the link could not be written"):
        write_links(tmp_path, places.impatient, 2)
    assert len(read_chain(places.direct)) == 1
    assert problems(places.direct) == []
    proxy.faults.clear()
    write_links(tmp_path, places.impatient, 2)
    apply_chain(places.direct, tmp_path / "served")
    assert served(tmp_path / "served") == wanted_arrays(COMMITS.states[1])


@pytest.mark.slow
@pytest.mark.parametrize("action", [503, "refuse", "cut", "slow"])
def test_a_fault_of_reading_that_passes_delays_it_only(places: Places, proxy: Proxy, tmp_path: Path, action: Action) -> None:  # fmt: skip
    write_links(tmp_path, places.direct, 1, 2)
    for number, work in enumerate((
        lambda: apply_chain(places.usual, tmp_path / "served"),
        lambda: export_delta(run_of(tmp_path, 4), places.usual),
        lambda: list(verify_chain(places.usual)),
    )):  # fmt: skip
        proxy.faults[:] = [Fault("^GET", action, (1 + number, 4, 9, 30))]
        work()
        assert proxy.faults[0].seen > 9
    assert [one.manifest.commit.epochs for one in read_chain(places.direct)] == [1, 2, 4]
    assert served(tmp_path / "served") == wanted_arrays(COMMITS.states[1])


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "action", "kind"), [(READ, "garble", TornCheckpoint), ("^GET", 503, StorageError), ("^GET", 403, StorageError),
                                                         ("^GET", 404, HeadraceError)])  # fmt: skip
def test_a_read_that_fails_or_has_another_byte_changes_no_target(places: Places, proxy: Proxy, tmp_path: Path, pattern: str, action: Action, kind: type[HeadraceError]) -> None:  # fmt: skip
    """Each request in turn, or each fifth, until one more than there are."""
    write_links(tmp_path, places.direct, 1)
    apply_chain(places.direct, tmp_path / "template")
    write_links(tmp_path, places.direct, 2)
    target, before = tmp_path / "served", folder_content(tmp_path / "template")
    step = 1 if action == "garble" else 5
    for number in range(1, 200, step):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(tmp_path / "template", target)
        proxy.faults[:] = [Fault(pattern, action, (number,) if action == "garble" else range(number, 10_000))]
        try:
            apply_chain(places.impatient, target)
        except kind:
            assert folder_content(target) == before
        else:
            break
    assert number > 10
    assert proxy.faults[0].seen < number
    assert served(target) == wanted_arrays(COMMITS.states[1])


class Kill(Fault):
    """Kills a process when a request arrives."""

    def __init__(self, number: int, action: Action) -> None:
        super().__init__(WRITE, action, (number,))
        self.pid, self.is_known = 0, threading.Event()

    def strikes(self, request: str) -> bool:
        assert self.is_known.wait(PATIENCE_SECS)
        if not super().strikes(request):
            return False
        os.kill(self.pid, signal.SIGKILL)
        return True


def run_killed(exporters: Exporters, proxy: Proxy, run: Path, chain: str, staging: Path, kill: Kill | None, line: int = -1) -> int:  # fmt: skip
    proxy.faults[:] = [] if kill is None else [kill]
    pid = exporters.start(run, chain, staging, line)
    if kill is not None:
        kill.pid = pid
        kill.is_known.set()
    status = exporters.end()
    proxy.faults.clear()
    return status


class Killed:
    """A chain with one link, whose second one is exported by processes that are killed."""

    def __init__(self, server: GcsServer, proxy: Proxy, folder: Path) -> None:
        self.places, self._folder, self._proxy = Places(server, proxy), folder, proxy
        write_links(folder, self.places.direct, 1)
        for epochs in (2, 3, 4):
            run_of(folder, epochs)

    def go_on(self, exporters: Exporters, status: int, epochs: int) -> None:
        """What was left is whole, and the next exports of another process go on and remove what is not needed."""
        chain = self.places.direct
        assert status in (0, -signal.SIGKILL)
        assert problems(chain) == []
        assert len(read_chain(chain)) in ((2,) if status == 0 else (1, 2))
        staging = self._folder / "other"
        for each in (epochs, 4):
            assert run_killed(exporters, self._proxy, self._folder / f"run-{each}", self.places.usual, staging, None) == 0  # fmt: skip
            assert problems(chain) == []
        links = read_chain(chain)
        assert [one.manifest.commit.epochs for one in links] == sorted({1, links[1].manifest.commit.epochs, epochs, 4})
        apply_chain(chain, self._folder / "served")
        assert served(self._folder / "served") == wanted_arrays(COMMITS.states[3])
        kept = {one.folder for one in links} | {state_folder(one.hash) for one in links[-2:]}
        assert {name.split("/")[0] for name in objects(chain) if "/" in name} == kept


@pytest.mark.slow
@pytest.mark.parametrize("action", ["refuse", "lose"])
def test_an_exporter_killed_at_any_request_that_writes_leaves_a_whole_chain(
    gcs_server: GcsServer, proxy: Proxy, tmp_path: Path, action: Action
) -> None:
    """``lose``: the server does the request at which its sender is killed. The next exporter writes the same link, or a later one."""
    kills = 0
    with Exporters() as exporters:
        for number in range(1, 1000):
            folder = tmp_path / str(number)
            scene = Killed(gcs_server, proxy, folder)
            status = run_killed(exporters, proxy, folder / "run-2", scene.places.usual, folder / "own", Kill(number, action))  # fmt: skip
            scene.go_on(exporters, status, 2 + number % 2)
            if status == 0:
                break
            kills += 1
    assert kills > 20


@pytest.mark.slow
def test_an_exporter_killed_at_some_lines_leaves_a_whole_chain(gcs_server: GcsServer, proxy: Proxy, tmp_path: Path) -> None:  # fmt: skip
    kills, step = 0, 41
    with Exporters() as exporters:
        for line in range(0, 100_000, step):
            folder = tmp_path / str(line)
            scene = Killed(gcs_server, proxy, folder)
            status = run_killed(exporters, proxy, folder / "run-2", scene.places.usual, folder / "own", None, line)
            scene.go_on(exporters, status, 2 + line // step % 2)
            if status == 0:
                break
            kills += 1
    assert kills > 5
