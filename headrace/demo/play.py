"""The demonstration itself: the very commands a user would type, one after the other, and what they showed at the end."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.demo.scripts import DemoScript, example_file
from transforms.errors import HeadraceError

Say = Callable[[str], None]
ProgressBar = Callable[[str, str], Any]


class DemoStepFailed(HeadraceError):
    """A command of the demo did not succeed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo measured, as the commands reported it."""

    submitted: tuple[dict[str, Any], ...]
    status: dict[str, Any]
    trained: dict[str, Any]
    killed_after_epoch: int
    secs: float


class Demo:
    """One run of a script in a folder of its own, which is emptied first."""

    def __init__(self, script: DemoScript, folder: Path, *, say: Say, progress_bar: ProgressBar, seed: int) -> None:
        self.script = script
        self.home = folder
        self.say = say
        self.progress_bar = progress_bar
        self.moments = random.Random(seed)

    def play(self, source: str) -> Outcome:
        """Everything, in order. Raises :class:`DemoStepFailed` if a command fails."""
        began = time.monotonic()
        shutil.rmtree(self.home, ignore_errors=True)
        logs = self.home / "logs"
        logs.mkdir(parents=True)
        self._prepare(source, logs)
        submitted = self._share(logs)
        killed_after, trained = self._train(logs)
        status = self._ask("status")
        return Outcome(submitted, status, trained, killed_after, time.monotonic() - began)

    def _prepare(self, source: str, logs: Path) -> None:
        self.say("\n[1] Raw logs")
        with self.progress_bar("preparing logs", "steps") as progress:
            self.say(self.script.prepare(source, logs, progress))
        self._run("table", "add", self.script.table, str(logs), "--time-column", "time")

    def _share(self, logs: Path) -> tuple[dict[str, Any], ...]:
        example = str(example_file(self.script.example))
        submit = ("model", "submit", example, "--table", self.script.table)
        self.say("\n[2] The first model: nothing is known yet, so everything is a miss")
        first = self._run(*submit, "--model", self.script.first)
        self._run("work", "--until-idle")
        self.say("\n[3] All models of the file, of two clients: what they share is a hit")
        everyone = self._run(*submit)
        self._run("work", "--until-idle")
        if self.script.late:
            self.say(f"\n[4] {self.script.late(logs)}")
            self._run("table", "add", self.script.table, str(logs))
            self._run("model", "explain", self.script.first)
            self._run("work", "--until-idle")
        others = [row for row in everyone["models"] if row["model"] != self.script.first]
        return (*first["models"], *others)

    def _train(self, logs: Path) -> tuple[int, dict[str, Any]]:
        train_end, test_end = self._split()
        options = self.home / "training.json"
        options.write_text(json.dumps(dict(self.script.options), indent=2), encoding="utf-8")
        command = ["train", self.script.first, "--end", train_end.isoformat(), "--test-end", test_end.isoformat(),
                   "--config", str(options)]  # fmt: skip
        if self.script.baseline:
            command += ["--baseline", self.script.baseline]
        self.say("\n[5] Training, killed with SIGKILL in the middle, then resumed")
        killed_after = self._run_and_kill(*command)
        self.say("the same command again:")
        return killed_after, self._run(*command)

    def _split(self) -> tuple[datetime, datetime]:
        table = self._ask("table", "ls")["tables"][0]
        partitions = self._ask("table", "show", self.script.table)["partitions"]
        starts = [_partition_start(row["partition"]) for row in partitions]
        return self.script.split(starts, datetime.fromisoformat(table["end"]))

    def _run_and_kill(self, *arguments: str) -> int:
        """Start training; once about half of its epochs are committed, wait a random moment and kill it."""
        self._show(arguments)
        process = subprocess.Popen(self._command(*arguments), env=self._environment(), stdout=subprocess.DEVNULL)
        while process.poll() is None:
            epochs = self._epochs_committed()
            if epochs is not None and epochs[0] * 2 >= epochs[1]:
                time.sleep(self.moments.uniform(0.0, 0.5))
                process.send_signal(signal.SIGKILL)
                process.wait()
            else:
                time.sleep(0.02)
        committed = self._epochs_committed() or (0, 0)
        if process.returncode != -signal.SIGKILL:
            raise DemoStepFailed("training ended before it could be killed", value=process.returncode,
                                 next_step="see its message above; or use a longer log")  # fmt: skip
        self.say(f"killed (SIGKILL) after epoch {committed[0]} of {committed[1]} was committed")
        return committed[0]

    def _epochs_committed(self) -> tuple[int, int] | None:
        """(epochs committed, epochs planned) of the run, read from its newest checkpoint without loading weights."""
        from trainer.checkpoint import peek_progress

        return peek_progress(self.home / "runs" / f"{self.script.first}-v1")

    # commands

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "headrace", *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HEADRACE_HOME": str(self.home)}

    def _show(self, arguments: Sequence[str]) -> None:
        here = os.path.relpath(self.home)
        self.say(f"$ HEADRACE_HOME={shlex.quote(here)} headrace {shlex.join(_shorter(arguments))}")

    def _run(self, *arguments: str) -> dict[str, Any]:
        """Run a command, let it print what it prints, and return the same answer as JSON."""
        self._show(arguments)
        return self._answer(*arguments, silent=False)

    def _ask(self, *arguments: str) -> dict[str, Any]:
        """The answer of a command that the user need not see."""
        return self._answer(*arguments, silent=True)

    def _answer(self, *arguments: str, silent: bool) -> dict[str, Any]:
        record = self.home / "answer.json"
        record.unlink(missing_ok=True)
        sys.stdout.flush()
        done = subprocess.run(
            self._command("--record", str(record), *arguments),
            env=self._environment(),
            stdout=subprocess.DEVNULL if silent else None,
            check=False,
        )
        self._check(arguments, done.returncode)
        answer: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        return answer

    def _check(self, arguments: Sequence[str], status: int) -> None:
        if status:
            raise DemoStepFailed("a step of the demo failed", value=f"exit status {status}",
                                 where=f"headrace {shlex.join(arguments)}", next_step="see its message above")  # fmt: skip


def _shorter(arguments: Sequence[str]) -> list[str]:
    """Absolute paths as a person at this folder would type them."""
    return [os.path.relpath(item) if os.path.isabs(item) else item for item in arguments]


def _partition_start(key: str) -> datetime:
    from warehouse.partitions import partition_range

    return partition_range(key)[0]
