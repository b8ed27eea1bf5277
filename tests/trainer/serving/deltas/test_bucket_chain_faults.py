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
from trainer.serving.deltas.export_links import export_delta, export_full
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


@pytest.mark.medium
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
    """A chain with two links, and the rows of both, whose third one is exported by processes that are killed."""

    def __init__(self, server: GcsServer, proxy: Proxy, folder: Path) -> None:
        self.places, self._folder, self._proxy = Places(server, proxy), folder, proxy
        write_links(folder, self.places.direct, 1, 2)
        for epochs in (3, 4):
            run_of(folder, epochs)

    def kill(self, exporters: Exporters, kill: Kill | None, line: int = -1) -> int:
        """The status of an exporter of the third commit that is killed."""
        own = self._folder / "own"
        return run_killed(exporters, self._proxy, self._folder / "run-3", self.places.usual, own, kill, line)

    def go_on(self, exporters: Exporters, status: int, epochs: int) -> None:
        """What was left is whole, and the next exports of another process go on and remove what is not needed.

        The first of them exports the commit of the one that was killed, or the next one; the second adds a full snapshot.
        """
        chain = self.places.direct
        assert status in (0, -signal.SIGKILL)
        assert problems(chain) == []
        has_third = len(read_chain(chain)) == 3
        assert len(read_chain(chain)) in ((3,) if status == 0 else (2, 3))
        run, staging = self._folder / f"run-{epochs}", self._folder / "other"
        assert run_killed(exporters, self._proxy, run, self.places.usual, staging, None) == 0
        assert problems(chain) == []
        export_full(run_of(self._folder, epochs), chain)
        links = read_chain(chain)
        wanted = [1, 2, *([3] if has_third else []), epochs, epochs]
        assert [one.manifest.commit.epochs for one in links] == (
            wanted if epochs > 3 or not has_third else [1, 2, 3, 3]
        )
        apply_chain(chain, self._folder / "served")
        assert served(self._folder / "served") == wanted_arrays(COMMITS.states[epochs - 1])
        kept = {one.folder for one in links} | {state_folder(one.hash) for one in links[-2:]}
        assert {name.split("/")[0] for name in objects(chain) if "/" in name} == kept


def survive_requests(server: GcsServer, proxy: Proxy, folder: Path, action: Action, step: int) -> int:
    """Kill an exporter at every ``step``-th request that writes, until it ends; the number of requests."""
    with Exporters() as exporters:
        for number in range(1, 1000, step):
            scene = Killed(server, proxy, folder / str(number))
            status = scene.kill(exporters, Kill(number, action))
            scene.go_on(exporters, status, 3 + number // step % 2)
            if status == 0:
                return number
    raise AssertionError


#: ``lose``: the server does the request at which its sender is killed.
@pytest.mark.slow
@pytest.mark.parametrize("action", ["refuse", "lose"])
def test_an_exporter_killed_at_some_requests_leaves_a_whole_chain(gcs_server: GcsServer, proxy: Proxy, tmp_path: Path, action: Action) -> None:  # fmt: skip
    assert survive_requests(gcs_server, proxy, tmp_path, action, 7) > 20


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("action", ["refuse", "lose"])
def test_an_exporter_killed_at_any_request_leaves_a_whole_chain(gcs_server: GcsServer, proxy: Proxy, tmp_path: Path, action: Action) -> None:  # fmt: skip
    assert survive_requests(gcs_server, proxy, tmp_path, action, 1) > 20


def survive_lines(server: GcsServer, proxy: Proxy, folder: Path, step: int) -> int:
    """Kill an exporter before every ``step``-th line of code, until it ends; the number of lines."""
    with Exporters() as exporters:
        for line in range(0, 100_000, step):
            scene = Killed(server, proxy, folder / str(line))
            status = scene.kill(exporters, None, line)
            scene.go_on(exporters, status, 3 + line // step % 2)
            if status == 0:
                return line
    raise AssertionError


@pytest.mark.slow
def test_an_exporter_killed_at_some_lines_leaves_a_whole_chain(gcs_server: GcsServer, proxy: Proxy, tmp_path: Path) -> None:  # fmt: skip
    assert survive_lines(gcs_server, proxy, tmp_path, 97) > 300


@pytest.mark.slow
@pytest.mark.soak
def test_an_exporter_killed_at_every_line_leaves_a_whole_chain(gcs_server: GcsServer, proxy: Proxy, tmp_path: Path) -> None:  # fmt: skip
    assert survive_lines(gcs_server, proxy, tmp_path, 1) > 300
