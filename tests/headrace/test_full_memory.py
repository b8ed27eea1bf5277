"""Training on parameter servers whose memory folder is too small: one error that names bytes and folder, and nothing is tried again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.job.launch.jobs import make_warehouse
from tests.trainer.job.launch.test_chaos_servers import OPTIONS

#: In a mount namespace of its own, whose shared memory is small, as in a container without --shm-size.
SMALL = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"')


def train_in_small_memory(folder: Path, size: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if subprocess.run([*SMALL, "1m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a small /dev/shm needs a user who may mount one")
    options = folder / "options.json"
    options.write_text(json.dumps({**OPTIONS, "passes": 1, "dim": 512}))
    command = [sys.executable, "-m", "headrace", "train", "ctr", "--home", str(folder / "home"), "--run-dir", str(folder / "run"),
               "--config", str(options), *arguments]  # fmt: skip
    return subprocess.run([*SMALL, size, *command], capture_output=True, text=True, check=False, timeout=500)


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "status"), [((), 6), (("--hosts", "1"), 7)])
def test_training_says_what_the_memory_folder_of_its_servers_lacks(tmp_path, arguments, status):
    """A job is held: another try would end the same way."""
    pytest.importorskip("tensorflow")
    make_warehouse(tmp_path, hours=1, rows=300).close()
    done = train_in_small_memory(tmp_path, "1m", "--servers", "1", *arguments)
    assert done.returncode == status, done.stderr
    assert done.stderr.count("the memory folder of a parameter server must have space for its tables") == 1
    assert "bytes needed, 1,0" in done.stderr, "bytes free, of 1 MiB"
    assert "docker run --shm-size" in done.stderr
    log = (tmp_path / "run" / "logs" / "s0.log").read_text()
    assert "ended" not in log, "no server was killed"
