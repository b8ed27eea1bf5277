"""Runs trials by seed in a child process with a limit of additional memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from transforms.errors import HeadraceError

ROOT = Path(__file__).resolve().parents[2]
#: Beyond what Python, Arrow and the compiled kernels took when the trials begin.
MEMORY_BYTES = 1 << 30
#: A trial that fails by an error of ours says so; anything else is written out, at most so many times.
_SHOWN = 5


def run_trials(module: str, kind: str, first: int, count: int, *arguments: str) -> Counter[str]:
    """What came of the trials ``first`` to ``first + count`` of a module: how many gave which error, or none.

    Fails the test if the child crashes, or if a trial raises anything but an error of Headrace.
    """
    command = [sys.executable, "-X", "faulthandler", "-m", module, kind, str(first), str(count), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, (
        f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    )
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def main(trials: dict[str, Callable[[int], object]], warm_up: int = -1) -> None:
    """What a child does: the trials that its arguments name, one after another, each by its seed."""
    kind, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    trial = trials[kind]
    trial(warm_up)
    _limit_memory()
    found: Counter[str] = Counter()
    failed = 0
    begun = time.monotonic()
    for seed in range(first, first + count):
        try:
            trial(seed)
            found["read"] += 1
        except HeadraceError as error:
            found[type(error).__name__] += 1
        except Exception:
            failed += 1
            if failed <= _SHOWN:
                sys.stderr.write(f"{kind}, seed {seed}:\n{traceback.format_exc()}\n")
    sys.stderr.write(f"{count} trials of {kind}: {failed} uncaught, {time.monotonic() - begun:.1f} s, {dict(found)}\n")
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if failed else 0)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
