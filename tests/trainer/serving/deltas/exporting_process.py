"""A program that exports to a bucket in a child process for each line of its input, since the child may be killed.

``python -m tests.trainer.serving.deltas.exporting_process``. A line is a JSON list: the run, the chain, the folder for a link on its way, and the
number of the line of code before which the child kills itself, or -1. It prints the number of the child, and its status when it has ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE_SECS
from tests.trainer.checkpoints.killing import kill_before_line
from tests.trainer.serving.deltas.histories import run_files
from trainer.serving.deltas.export_links import export_next
from trainer.serving.deltas.locked_chain import locked_chain

#: The modules whose lines can leave a chain in another state.
_TRACED = (
    "deltas/export_links.py",
    "deltas/bucket_chain.py",
    "deltas/row_state.py",
    "deltas/raw_files.py",
    "checkpoints/bucket_run.py",
)


def export(run: Path, chain: str, staging: Path, line: int) -> None:
    """What a training does: the newest commit becomes a link."""
    with locked_chain(chain, staging) as opened:
        if line >= 0:
            kill_before_line(line, _TRACED)
        export_next(run_files(run), opened, opened.newest())
        sys.settrace(None)


def _serve() -> None:
    for text in sys.stdin:
        run, chain, staging, line = json.loads(text)
        child = os.fork()
        if child == 0:
            try:
                export(Path(run), chain, Path(staging), line)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


class Exporters:
    """The program; a context manager."""

    def __enter__(self) -> Exporters:
        command = [sys.executable, "-m", "tests.trainer.serving.deltas.exporting_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_SECS) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, run: Path, chain: str, staging: Path, line: int = -1) -> int:
        """Begin an export; the number of its process."""
        assert self._process.stdin is not None
        print(json.dumps([str(run), chain, str(staging), line]), file=self._process.stdin, flush=True)
        return self._number()

    def end(self) -> int:
        """The status with which the export ended: 0, or -9 if it was killed."""
        return os.waitstatus_to_exitcode(self._number())

    def _number(self) -> int:
        assert self._process.stdout is not None
        began = time.monotonic()
        line = self._process.stdout.readline()
        assert line, f"the program ended after {time.monotonic() - began:.0f} s"
        return int(line)


if __name__ == "__main__":
    _serve()
