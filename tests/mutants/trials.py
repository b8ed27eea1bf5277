"""Runs tests against mutants, in copies of the tree: the tree itself is only read, so a killed run leaves it as it was."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.candidates import Mutant

#: The time of all tests of a mutant, and of one of them: a mutant may loop for ever.
_LIMIT_SECS, _TEST_SECS = 900.0, 240
#: The modification times of a mutated file are so far apart: bytecode of the one before is not taken for that of the next.
_MTIME_STEP_SECS = 10
_NO_TESTS, _PASSED = 5, 0
#: A folder outside of packages: the tree of the tests may have no ``tests.mutants``.
_PLUGIN = Path(__file__).parent / "plugin"


class Outcome(StrEnum):
    """What the tests made of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNTESTED = "no tests"
    UNJUDGED = "tests fail without it"


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant and its outcome.

    Attributes:
        tests: that ran.
        secs: how long they took.
    """

    mutant: Mutant
    outcome: Outcome
    tests: tuple[str, ...]
    secs: float


@dataclass(frozen=True, slots=True)
class TimedRun:
    """How tests ended: pytest's status, negative for a signal and None for a time limit."""

    status: int | None
    secs: float


class Copy:
    """A copy of the tree in which one mutant at a time is applied."""

    _CACHE = ".mutant-tests"

    def __init__(self, root: Path, folder: Path, files: Iterable[str], options: Sequence[str]) -> None:
        self._folder, self._options = folder, options
        for file in files:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, target)
        self._mtime_secs = int(time.time())
        self._sound: set[str] = set()

    def run(self, tests: Sequence[str], *options: str) -> TimedRun:
        """Run tests; the first failure ends them, and is remembered."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-o", f"cache_dir={self._CACHE}", "--timeout", str(_TEST_SECS), "-p", "quick_first",
                   *self._options, *options, *tests]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(self._folder), str(_PLUGIN)))}
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            status: int | None = process.wait(_LIMIT_SECS)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end_group(process)
        return TimedRun(status, time.monotonic() - began)

    def failed_are_sound(self, tests: Sequence[str]) -> bool:
        """Whether the tests that failed last, all of them if none did, as after a time limit, pass without a mutant.

        Each is run once in a copy: what has passed is taken to pass again.
        """
        failed = self._last_failed()
        if failed and failed <= self._sound:
            return True
        if self.run(tests, "--last-failed", "--last-failed-no-failures=all").status != _PASSED:
            return False
        self._sound |= failed
        return True

    def _last_failed(self) -> set[str]:
        try:
            return set(json.loads((self._folder / self._CACHE / "v" / "cache" / "lastfailed").read_bytes()))
        except FileNotFoundError:
            return set()

    def run_mutated(self, mutant: Mutant, tests: Sequence[str]) -> TimedRun:
        """Run tests with a mutant in its file, which is restored after them."""
        path = self._folder / mutant.file
        source = path.read_bytes()
        shutil.rmtree(self._folder / self._CACHE, ignore_errors=True)
        self._write(path, mutant.applied(source))
        try:
            return self.run(tests)
        finally:
            self._write(path, source)

    def _write(self, path: Path, content: bytes) -> None:
        self._mtime_secs += _MTIME_STEP_SECS
        path.write_bytes(content)
        os.utime(path, (self._mtime_secs, self._mtime_secs))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the processes that tests started and left, and the tests if they still run."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_trials(
    copies: Sequence[Copy],
    mutants: Sequence[Mutant],
    tests_of: Callable[[str], tuple[str, ...]],
    on_trial: Callable[[Trial], None],
) -> list[Trial]:
    """The trials of all mutants, in their order; ``on_trial`` is called for each as it ends, by any thread.

    A test that fails with a mutant runs again without it: one that fails anyway judges nothing.
    """
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def trial(mutant: Mutant) -> Trial:
        copy = free.get()
        try:
            done = _tried(copy, mutant, tests_of(mutant.file))
        finally:
            free.put(copy)
        on_trial(done)
        return done

    with ThreadPoolExecutor(len(copies)) as threads:
        return list(threads.map(trial, mutants))


def _tried(copy: Copy, mutant: Mutant, tests: tuple[str, ...]) -> Trial:
    if not tests:
        return Trial(mutant, Outcome.UNTESTED, tests, 0.0)
    run = copy.run_mutated(mutant, tests)
    if run.status == _PASSED:
        return Trial(mutant, Outcome.SURVIVED, tests, run.secs)
    if run.status == _NO_TESTS:
        return Trial(mutant, Outcome.UNTESTED, tests, run.secs)
    outcome = Outcome.KILLED if copy.failed_are_sound(tests) else Outcome.UNJUDGED
    return Trial(mutant, outcome, tests, run.secs)
