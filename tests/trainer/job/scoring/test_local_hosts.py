"""Processes that score beside this one: started with a token, watched, and ended with the block whatever they do."""

from __future__ import annotations

import os
import sys

import pytest

from tests.support.processes import PATIENCE_SECS
from trainer.errors import HostLost
from trainer.job.scoring import local_hosts as module
from trainer.job.scoring.local_hosts import local_hosts, token_path

LONG = "import time; time.sleep(600)"


def started(hosts, program, seen=None):
    """Hosts that run a program of Python; ``seen``: takes the rank, and where they meet, of each command."""

    def command(rank, folder):
        if seen is not None:
            seen.append((rank, folder))
        return [sys.executable, "-c", program]

    return local_hosts(hosts, command)


def test_hosts_run_beside_this_one_until_the_block_ends(monkeypatch):
    monkeypatch.setattr(module, "_END_SECS", 0.01)
    seen = []
    with started(3, LONG, seen) as hosts:
        assert seen == [(1, hosts.folder), (2, hosts.folder)]
        assert [one.poll() for one in hosts.processes] == [None, None]
        for one in hosts.processes:
            assert one.args[-2:] == ["--supervisor", str(os.getpid())]
        assert token_path(hosts.folder).read_text() == hosts.token
        assert token_path(hosts.folder).stat().st_mode & 0o777 == 0o600
        assert len(hosts.token) == 32
        hosts.check()
    assert all(one.returncode == -9 for one in hosts.processes)
    assert not hosts.folder.exists()
    with started(1, LONG) as alone:
        assert alone.processes == ()
        assert alone.token != hosts.token


def test_hosts_are_ended_with_an_error_of_the_block():
    with pytest.raises(ZeroDivisionError), started(2, LONG) as hosts:
        raise ZeroDivisionError
    assert hosts.processes[0].returncode == -9


def test_hosts_that_end_by_themselves_are_waited_for(tmp_path, monkeypatch):
    """What they do last is done when the block has ended."""
    monkeypatch.setattr(module, "_END_SECS", PATIENCE_SECS)
    with started(
        2, f"import time, pathlib; time.sleep(0.3); pathlib.Path({str(tmp_path / 'done')!r}).touch()"
    ) as hosts:
        pass
    assert (tmp_path / "done").exists()
    assert hosts.processes[0].returncode == 0


@pytest.mark.parametrize(
    ("program", "last"),
    [
        (
            "import sys; print('first\\n the reason \\n', flush=True); sys.exit(3)",
            "status 3: the reason",
        ),
        ("import os; os._exit(4)", "status 4: no output"),
        ("import sys; sys.stdout.buffer.write(b'\\xff!'); sys.exit(1)", "status 1: \ufffd!"),
    ],
)
def test_a_host_that_fails_is_named_with_its_last_line(program, last):
    with started(2, program) as hosts:
        hosts.processes[0].wait()
        with pytest.raises(HostLost, match="must not end before the others") as caught:
            hosts.check()
    assert caught.value.where == "host 1"
    assert caught.value.value == last


def test_a_host_that_is_done_is_no_failure():
    with started(2, "pass") as hosts:
        hosts.processes[0].wait()
        hosts.check()
