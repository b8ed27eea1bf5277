"""The keeper of a parameter server and its child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from headrace.cli.options.servers import server_command
from tests.support.processes import PATIENCE_SECS
from trainer.errors import ConfigError, DamagedMemory
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.local_servers import LocalServers
from trainer.job.launch.server_process import ServerOptions, run_server
from transforms.errors import StorageError

_INTERRUPTED_FORK = """
import os, signal
from trainer.job.launch.server_process import ServerOptions, run_server

fork = os.fork

def interrupted_fork():
    child = fork()
    if child:
        os.kill(os.getpid(), signal.SIGTERM)
    return child

os.fork = interrupted_fork
raise SystemExit(run_server(ServerOptions()))
"""


def test_a_keeper_that_is_ended_while_it_forks_ends_its_child():
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED_FORK], timeout=PATIENCE_SECS, check=False)
    assert done.returncode == 0


_DAMAGED = """
import logging, pathlib
from trainer.job.launch.server_process import ServerOptions, run_server

logging.basicConfig(level=logging.INFO)
memory = pathlib.Path({memory!r})
memory.mkdir()
(memory / "tables.json").write_text("[")
raise SystemExit(run_server(ServerOptions(memory=memory)))
"""
_KILLED = """
import logging, os, signal
import trainer.job.launch.keeper as keeper
from trainer.wire.flight.addresses import LOOPBACK
from trainer.wire.flight.connections import listen

logging.basicConfig(level=logging.INFO)

def killed(listening, drain):
    os.kill(os.getpid(), signal.SIGBUS)

raise SystemExit(keeper.Keeper(listen(LOOPBACK), killed, drain_secs=1.0).run())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECS, check=False
    )


def test_an_error_that_would_repeat_ends_a_server_at_once(tmp_path):
    done = run(_DAMAGED.format(memory=str(tmp_path / "memory")))
    assert done.returncode == DamagedMemory.exit_status
    assert done.stderr.count("error: the tables in a server's memory must be those that were written") == 1
    assert "would end by the same error again" in done.stderr


@pytest.mark.medium
def test_a_keeper_names_the_signals_that_end_its_children():
    done = run(_KILLED)
    assert done.returncode == 1
    assert done.stderr.count("was ended by SIGBUS; the next one takes its place") == 20
    assert "20 processes ended at once, one after the other; the last one was ended by SIGBUS" in done.stderr


def check_for(secs: float, servers: LocalServers) -> None:
    until = time.monotonic() + secs
    while time.monotonic() < until:
        servers.check()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_server_that_ends_by_an_error_is_not_started_again_and_the_error_has_its_reason(tmp_path):
    """Its keeper is killed, and the next one finds memory of other bytes."""
    files = JobFiles(tmp_path)
    files.make_token()
    with LocalServers(2, server_command, token_file=files.token, logs=tmp_path) as servers:
        servers.check()
        (servers._servers[1].memory / "tables.json").write_text("[")
        os.killpg(servers.processes["s1"], signal.SIGKILL)
        with pytest.raises(StorageError, match="a parameter server has ended") as raised:
            check_for(PATIENCE_SECS, servers)
        assert raised.value.where == str(tmp_path / "s1.log")
        assert (
            raised.value.value == "ended with status 3: the tables in a server's memory must be those that were written"
        )
        assert list(servers.processes) == ["s0"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_memory_that_other_users_may_write_is_refused(tmp_path, mode):
    folder = tmp_path / "memory"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ConfigError, match="no other user may write it") as found:
        run_server(ServerOptions(memory=folder))
    assert str(folder) in found.value.where
    assert found.value.value == f"owner {os.geteuid()}, mode {mode:03o}"
    assert f"chmod 700 {folder}" in found.value.next_step
    assert not list(folder.iterdir())
