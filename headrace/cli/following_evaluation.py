"""Evaluates the commits of a run while it is trained, by a process of its own: readers, hosts and servers do not stop for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.held_out_scoring import OwnScores, no_columns, score
from headrace.cli.options.scoring_hosts import ScoringHosts
from headrace.screens.score_figures import scores_by_label, sentence_of
from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from transforms.child_process import child_environment, module_command
from transforms.errors import NotFound

if TYPE_CHECKING:
    from trainer.run.progress.evaluation_log import EvaluatedCommit, EvaluationLog
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

_LOOK_SECS = 0.5
#: The lowest priority: a process of another priority gets about 70 times as much of a core that both want.
_NICENESS = 19
#: A process that has this variable, without a device, leaves accelerators to the training.
_DEVICES = "CUDA_VISIBLE_DEVICES"
_TAIL_BYTES = 4096


def follow_run(
    warehouse: Warehouse,
    solution: ReadSolution,
    folder: str,
    start: str,
    end: str,
    together: ScoringHosts | None,
    command: Callable[[int, Path], Sequence[str]],
    is_over: Callable[[], bool],
) -> None:
    """Evaluate the newest commit of the run in ``folder`` whenever there is another one, and add its figures to the run's log.

    Args:
        solution: the events, the same ones for all commits.
        start, end: the range, for the log.
        together, command: see :func:`~headrace.cli.held_out_scoring.score`.
        is_over: whether no commit follows; then the newest one is evaluated last.
    """
    from trainer.checkpoints.open_run import open_run
    from trainer.checkpoints.run_files import newest_first
    from trainer.errors import TornCheckpoint
    from trainer.run.progress.evaluation_log import EvaluationLog

    files, log = open_run(folder), EvaluationLog.read(folder)
    known = log.newest(start, end)
    seen = "" if known is None or known.table_version != solution.table_version else known.checkpoint
    while True:
        ends = is_over()  # before the look: a commit that is written meanwhile is the next one
        newest = next(iter(newest_first(files)), "")
        if newest and newest != seen:
            try:
                found = _evaluated(warehouse, solution, folder, start, end, together, command)
            except (TornCheckpoint, NotFound) as error:  # a newer commit has replaced it meanwhile
                if ends and next(iter(newest_first(files)), "") == newest:
                    raise
                say(f"a commit could not be evaluated: {error}")
                time.sleep(_LOOK_SECS)
                continue
            seen, log = found.checkpoint, log.with_commit(found)
            log.write(folder)
            for name, one in scores_by_label(found.scores).items():
                say(f"{found.checkpoint}, step {found.step:,}{', ' if name else ''}{name}: {sentence_of(one)}")
        elif ends:
            return
        else:
            time.sleep(_LOOK_SECS)


def _evaluated(
    warehouse: Warehouse,
    solution: ReadSolution,
    folder: str,
    start: str,
    end: str,
    together: ScoringHosts | None,
    command: Callable[[int, Path], Sequence[str]],
) -> EvaluatedCommit:
    began = time.monotonic()

    def compute(own: OwnScores) -> EvaluatedCommit:
        from trainer.run.progress.evaluation_log import EvaluatedCommit
        from trainer.serving.segmented import evaluate_by

        scores = evaluate_by(own.events, own.fragments, (), no_columns, exchange=own.exchange).figures.scores
        progress, secs = own.progress, time.monotonic() - began
        return EvaluatedCommit(own.checkpoint, progress.epochs_done, progress.step, start, end, solution.table_version, scores, secs)  # fmt: skip

    return score(warehouse, solution, folder, "evaluating", compute, together, command)


def lower_priority() -> None:
    """Give this process the lowest priority, so that it has the time of cores that the training leaves; Ctrl-C is the training's."""
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def closed_input() -> Callable[[], bool]:
    """Whether the process that started this one has closed its standard input."""
    is_closed = threading.Event()

    def read() -> None:
        sys.stdin.buffer.read()
        is_closed.set()

    threading.Thread(target=read, name="input", daemon=True).start()
    return is_closed.is_set


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The process that evaluates the commits of a training.

    Attributes:
        process: the command ``headrace evaluate --follow``.
        run_dir: the folder of the run, or its location in a bucket.
        log: its output.
    """

    process: subprocess.Popen[bytes]
    run_dir: str
    log: Path

    def finish(self) -> EvaluationLog:
        """Wait until the newest commit is evaluated; the evaluations of the run. A failure is a sentence: the run has ended well."""
        from trainer.run.progress.evaluation_log import EvaluationLog

        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has failed before
            self.process.stdin.close()
        with progress_bar("evaluating the newest commit", "events"):
            status = self.process.wait()
        if status:
            lines = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
            say(f"commits are not evaluated any more: status {status}: {last}; {self.log} has its output")
        return EvaluationLog.read(self.run_dir)


@contextmanager
def evaluator(
    solution: ReadSolution | None, run_dir: str, files: str, start: str, end: str, home: str
) -> Iterator[Evaluator | None]:
    """Evaluate commits on the events of ``solution`` while the block runs; None: do not.

    Args:
        run_dir: the run directory.
        files: the local folder of the job's files.
        start, end: the range of the events.
        home: the warehouse's home; empty: the default one.
    """
    if solution is None:
        yield None
        return
    log = Path(files).absolute() / "logs" / "evaluator.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = module_command("headrace", "evaluate", solution.model, "--run-dir", run_dir, "--version", str(solution.model_version))  # fmt: skip
    command += ["--start", start, "--end", end, *(("--home", home) if home else ())]
    command += ["--table-version", str(solution.table_version), "--follow", "--supervisor", str(os.getpid())]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env={**child_environment(), _DEVICES: ""}
        )
    try:
        yield Evaluator(process, run_dir, log)
    finally:
        process.kill()
        process.wait()
