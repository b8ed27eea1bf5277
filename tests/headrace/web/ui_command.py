"""The command ``headrace ui`` in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.headrace.web.pages import Browser
from tests.support.processes import PATIENCE_SECS, end, start, wait_until
from tests.warehouse.scenes import REPOSITORY


@dataclass
class Command:
    """``headrace ui`` in a process of its own."""

    browser: Browser
    pid: int
    log: Path

    def resident_bytes(self) -> int:
        """The memory of the process."""
        (line,) = (one for one in Path(f"/proc/{self.pid}/status").read_text().splitlines() if one.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024


@contextmanager
def command(home: Path, log: Path, *options: str, files: int = 1024) -> Iterator[Command]:
    """The command, which may have ``files`` open files."""
    script = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])));"
    script += "from headrace.cli.main import run; sys.exit(run(sys.argv[2:]))"
    process = start([sys.executable, "-c", script, str(files), "ui", "--home", str(home), "--port", "0", "--allow-changes", *options], log,
                    {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"})  # fmt: skip
    try:
        wait_until(lambda: "Ctrl-C ends them" in log.read_text(), "the pages are served", {"ui": process})
        address = next(word for word in log.read_text().split() if word.startswith("http://"))
        opened = Browser(address)
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            with suppress(ConnectionError):
                opened.get("/healthz")
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Command(opened.enter() if "token=" in address else opened, process.pid, log)
        assert process.poll() is None, log.read_text()
    finally:
        end(process)
