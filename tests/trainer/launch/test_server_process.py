"""The keeper of a parameter server and its child."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import PATIENCE_SECS

_INTERRUPTED_FORK = """
import os, signal
from trainer.launch.server_process import ServerOptions, run_server

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
