"""Runs a demo: the commands as a user would type them, and their results."""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from headrace.demo.scripts import DemoScript, LogOptions, example_file
from trainer.checkpoints.checkpoint import epochs_committed
from transforms.child_process import child_environment, module_command
from transforms.errors import HeadraceError, InputError

#: Marks a folder that a demo created, and may therefore empty.
MARKER = ".headrace-demo"
ProgressBar = Callable[[str, str], Any]


class DemoStepFailed(HeadraceError):
    """A command of the demo failed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a demo, as the commands reported them."""

    submitted: tuple[dict[str, Any], ...]
    status: dict[str, Any]
    trained: dict[str, Any]
    killed_after_epoch: int
    secs: float


class Demo:
    """One run of a script in a folder of its own, which is emptied first. ``transcript`` needs a file descriptor."""

    def __init__(
        self,
        script: DemoScript,
        folder: Path,
        *,
        transcript: TextIO,
        progress_bar: ProgressBar,
        options: LogOptions,
        seed: int,
    ) -> None:
        self.script = script
        self.home = folder
        self.transcript = transcript
        self.progress_bar = progress_bar
        self.options = options
        self.moments = random.Random(seed)

    def play(self, source: str) -> Outcome:
        """Run all steps in order. Raises :class:`DemoStepFailed` if a command fails."""
        began = time.monotonic()
        empty_demo_folder(self.home)
        logs = self.home / "logs"
        logs.mkdir()
        self._prepare(source, logs)
        submitted = self._share(logs)
        killed_after, trained = self._train()
        status = self._ask("status")
        return Outcome(submitted, status, trained, killed_after, time.monotonic() - began)

    def _prepare(self, source: str, logs: Path) -> None:
        self.say("\n[1] Raw logs")
        with self.progress_bar("preparing logs", "steps") as progress:
            self.say(self.script.prepare(source, logs, self.options, progress))
        self._run("table", "add", self.script.table, str(logs), "--time-column", "time")

    def _share(self, logs: Path) -> tuple[dict[str, Any], ...]:
        example = str(example_file(self.script.example))
        submit = ("model", "submit", example, "--table", self.script.table)
        self.say("\n[2] The first model: no memo exists yet, so everything is a miss")
        first = self._run(*submit, "--model", self.script.first)
        self._run("work", "--until-idle")
        self.say("\n[3] All models of the file, of two clients: shared inputs are hits")
        everyone = self._run(*submit)
        self._run("work", "--until-idle")
        if self.script.late:
            self.say(f"\n[4] {self.script.late(logs)}")
            self._run("table", "add", self.script.table, str(logs))
            self._run("model", "explain", self.script.first)
            self._run("work", "--until-idle")
        others = [row for row in everyone["models"] if row["model"] != self.script.first]
        return (*first["models"], *others)

    def _train(self) -> tuple[int, dict[str, Any]]:
        starts, end = self._partitions()
        train_end, test_end = self.script.split(starts, end)
        options = {"partitions_per_epoch": 1, "passes": 1, **self.script.options}
        settings = self.home / "training.json"
        settings.write_text(json.dumps(options, indent=2), encoding="utf-8")
        command = ["train", self.script.first, "--end", train_end.isoformat(), "--test-end", test_end.isoformat(),
                   "--config", str(settings)]  # fmt: skip
        for column in self.script.baselines:
            command += ["--baseline", column]
        partitions = sum(start < train_end for start in starts)
        epochs = math.ceil(partitions / int(str(options["partitions_per_epoch"]))) * int(str(options["passes"]))
        self.say("\n[5] Training, killed with SIGKILL in the middle, then resumed")
        killed_after = self._run_and_kill(epochs, *command)
        self.say("the same command again:")
        return killed_after, self._run(*command)

    def _partitions(self) -> tuple[list[datetime], datetime]:
        from warehouse.tables.partitions import partition_range

        found = self._ask("table", "show", self.script.table)["partitions"]
        ranges = [partition_range(row["partition"]) for row in found]
        return [start for start, _ in ranges], max(end for _, end in ranges)

    def _run_and_kill(self, epochs: int, *arguments: str) -> int:
        """Start training; after half of its epochs, wait a random part of an epoch and kill it."""
        self._show(arguments)
        run_dir = self.home / "runs" / f"{self.script.first}-v1"
        process = subprocess.Popen(
            module_command("headrace", *arguments), env=self._environment(), stdout=subprocess.DEVNULL
        )
        first_commit: tuple[float, int] | None = None
        while process.poll() is None:
            now, committed = time.monotonic(), epochs_committed(run_dir)
            if committed and first_commit is None:
                first_commit = now, committed
            if first_commit and committed * 2 >= epochs:
                epoch_secs = (now - first_commit[0]) / max(committed - first_commit[1], 1)
                time.sleep(self.moments.uniform(0.0, 0.8) * epoch_secs)
                process.send_signal(signal.SIGKILL)
                process.wait()
            else:
                time.sleep(0.005)
        if process.returncode != -signal.SIGKILL:
            raise DemoStepFailed("the training ended before it was killed", value=f"exit status {process.returncode}",
                                 next_step="see its message above, or use a longer log")  # fmt: skip
        committed = epochs_committed(run_dir)
        self.say(f"killed (SIGKILL) after epoch {committed} of {epochs} was committed")
        return committed

    # commands

    def say(self, text: str) -> None:
        """Write to the transcript, with the output of the commands."""
        self.transcript.write(text + "\n")
        self.transcript.flush()

    def _environment(self) -> dict[str, str]:
        return child_environment({"HEADRACE_HOME": str(self.home)})

    def _show(self, arguments: Sequence[str]) -> None:
        here = os.path.relpath(self.home)
        self.say(f"$ HEADRACE_HOME={shlex.quote(here)} headrace {shlex.join(_shorter(arguments))}")

    def _run(self, *arguments: str) -> dict[str, Any]:
        """Run a command with its output in the transcript, and return the result as JSON."""
        self._show(arguments)
        return self._answer(*arguments, silent=False)

    def _ask(self, *arguments: str) -> dict[str, Any]:
        """The result of a command without output."""
        return self._answer(*arguments, silent=True)

    def _answer(self, *arguments: str, silent: bool) -> dict[str, Any]:
        record = self.home / "answer.json"
        record.unlink(missing_ok=True)
        done = subprocess.run(
            module_command("headrace", "--record", str(record), *arguments),
            env=self._environment(),
            stdout=subprocess.DEVNULL if silent else self.transcript,
            check=False,
        )
        self._check(arguments, done.returncode)
        answer: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        return answer

    def _check(self, arguments: Sequence[str], status: int) -> None:
        if status:
            raise DemoStepFailed("a step of the demo failed", value=f"exit status {status}",
                                 where=f"headrace {shlex.join(arguments)}", next_step="see its message above")  # fmt: skip


def empty_demo_folder(folder: Path) -> None:
    """Empty a new folder or an earlier demo's. Raises :class:`InputError` for other files."""
    marker = folder / MARKER
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        raise InputError("the demo's folder must be empty or hold an earlier demo", where="--home", value=str(folder),
                         next_step="name a folder that is empty or does not exist")  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    marker.touch()


def _shorter(arguments: Sequence[str]) -> list[str]:
    """The arguments with absolute paths made relative."""
    return [os.path.relpath(item) if os.path.isabs(item) else item for item in arguments]
