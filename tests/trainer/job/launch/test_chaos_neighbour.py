"""A neighbour without the token, and a memory folder that is made full, against real processes' services and a real file system."""

from __future__ import annotations

import os
import signal

import pytest

from headrace.cli.options.servers import server_command
from tests.support.embedding_workers import ThreadWorker
from tests.support.parameter_servers import ThreadServer
from tests.support.processes import free_port, wait_until
from tests.trainer.run.reading.test_unit_reader import reader_of
from trainer.errors import ServerLost
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.chaos.disturbed_servers import DisturbedServers
from trainer.job.launch.chaos.limited_memory import LimitedMemory, may_limit_memory
from trainer.job.launch.chaos.links import Links
from trainer.job.launch.chaos.neighbour import visit
from trainer.job.launch.chaos.schedule import SERVER, WORKER, Fault, FaultKind, Side
from trainer.job.launch.local_servers import LocalServers
from trainer.run.reading.reader_service import ReaderService
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import InputError


def test_servers_and_workers_with_a_token_refuse_a_neighbour_and_others_are_named():
    for token, is_refused in (("secret", True), ("", False)):
        server = ThreadServer(token=token)
        worker = ThreadWorker([server.address], token=token)
        try:
            assert visit(SERVER, server.address) is is_refused
            assert visit(WORKER, worker.address) is is_refused
            assert server.rows.status().updates == 0
        finally:
            worker.close()
            server.close()


def test_a_reader_with_a_token_refuses_a_neighbour():
    for token, is_refused in (("secret", True), ("", False)):
        with ReaderService(LOOPBACK, reader_of(), token=token) as service:
            assert visit("reader", service.address) is is_refused


@pytest.mark.slow
def test_a_process_that_does_not_answer_was_not_visited():
    nowhere = Address("127.0.0.1", free_port())
    with pytest.raises(Unreachable):
        visit("controller", nowhere)
    with pytest.raises(ServerLost):
        visit(SERVER, nowhere)


def test_a_full_memory_has_no_room_for_a_byte_and_then_its_room_again():
    if not may_limit_memory():
        pytest.skip("a limited memory needs a user who may mount a file system")
    with LimitedMemory() as memory:
        (memory.folder / "rows").write_bytes(bytes(1 << 20))
        memory.fill()
        with open(memory.folder / "more", "wb") as more, pytest.raises(OSError, match="No space left"):
            os.posix_fallocate(more.fileno(), 0, 1 << 20)
        assert (memory.folder / "rows").read_bytes() == bytes(1 << 20)
        memory.empty()
        (memory.folder / "more").write_bytes(bytes(2 << 20))
    assert not memory.folder.exists()


@pytest.mark.slow
def test_a_server_that_is_started_while_its_folder_is_full_runs_again_when_there_is_space(tmp_path):
    """Killed at that time it has no space for its snapshot or its files: no other server is lost by that, and it is not given up."""
    if not may_limit_memory():
        pytest.skip("only some users may mount a file system")
    files = JobFiles(tmp_path)
    files.make_token()
    with (
        LimitedMemory() as memory,
        LocalServers(
            2, server_command, token_file=files.token, logs=tmp_path / "logs", memory=memory.folder
        ) as servers,
        Links() as links,
    ):
        disturbed = DisturbedServers(servers, links, memory)
        (servers._servers[1].memory / "tables.json").write_text("[")  # the error of a folder that a full disk left
        end = disturbed.apply(Fault(0.0, FaultKind.FULL_MEMORY, SERVER, 0.0, 1.0, Side.ALL, False), "s1")
        os.killpg(servers.processes["s1"], signal.SIGKILL)
        wait_until(lambda: "s1" in servers._given_up, "the server has ended by its error", {})
        disturbed.check()
        assert "s1" not in servers.processes, "nothing starts it while the folder is full"
        (servers._servers[1].memory / "tables.json").unlink()
        end()
        disturbed.check()
        wait_until(lambda: "s1" in disturbed.running(), "the server runs again", {})
        servers.check()
        os.killpg(servers.processes["s0"], signal.SIGKILL)
        wait_until(lambda: "s0" in disturbed.running(), "a killed server runs again", {})


def test_a_user_who_may_not_mount_is_told_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")  # no mount command
    with pytest.raises(InputError, match="full-memory needs a user who may mount"), LimitedMemory():
        pass
    assert not may_limit_memory()
