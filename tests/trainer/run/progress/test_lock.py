from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trainer.run.progress.lock import run_lock
from transforms.errors import Busy, StorageError

HOLDER = """
import sys, time
from pathlib import Path
from trainer.run.progress.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(3600)
"""


def test_the_error_of_a_second_process_names_the_holder_of_the_run(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Busy) as caught, run_lock(tmp_path):
            pass
        assert caught.value.value == f"process {holder.pid}"
        assert str(tmp_path) in caught.value.where
    finally:
        holder.kill()
        holder.communicate()
    with run_lock(tmp_path):  # a killed holder leaves nothing to clean up
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    with run_lock(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"), run_lock(tmp_path / "file" / "run"):
        pass
