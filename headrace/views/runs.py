"""Runs of training: those of a home, one run, the differences between two, and their learning curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.runs.curves import Axis
    from headrace.runs.history import History, Rows
    from headrace.runs.trained_run import TrainedRun
    from headrace.screens.curves import CurvesScreen
    from headrace.screens.runs import EventFilesScreen, RunDiffScreen, RunRow, RunScreen, RunsScreen
    from headrace.tracking.event_folder import EventFolder
    from headrace.views.holds import FindHold
    from trainer.run.progress.evaluation_log import EvaluatedCommit
    from transforms.errors import HeadraceError

#: Reads the run in a folder.
ReadRun: TypeAlias = "Callable[[str], TrainedRun]"


def listed(home: str, read: ReadRun | None = None, find: FindHold | None = None) -> RunsScreen:
    """The runs in the folder ``runs`` of a local home, those with the newest commits first; one that cannot be read has its reason.

    Args:
        home: a folder.
        read, find: read a run, and find the hold of its job; None: from their files, each time.
    """
    from headrace.runs.run_folders import RUNS, folders_of_home
    from headrace.screens.runs import RunsScreen

    rows = [_row(path, read, find) for path in folders_of_home(home)]
    rows.sort(key=lambda row: 0.0 if row.run is None else -row.run.committed_secs)
    return RunsScreen(str(Path(home) / RUNS), tuple(rows))


def shown(folder: str) -> RunScreen:
    """The run in a folder, or in a bucket. Raises what :func:`~headrace.runs.trained_run.read_run` raises."""
    from headrace.runs.trained_run import read_run
    from headrace.screens.runs import RunScreen

    return RunScreen(read_run(folder), state_of(folder))


def compared(first: str, second: str) -> RunDiffScreen:
    """The differences between the runs in two folders. Raises as :func:`shown`."""
    from headrace.runs.comparison import compare
    from headrace.runs.trained_run import read_run
    from headrace.screens.runs import RunDiffScreen

    ours, theirs = read_run(first), read_run(second)
    names = _names([first, second])
    return RunDiffScreen(names[0], names[1], compare(ours, theirs))


def plotted(
    folders: Sequence[str], *, metric: str = "", axis: Axis = "step", smoothing: float = 0.0, rows: Rows = "windows"
) -> CurvesScreen:
    """The curves of a figure of the runs in these folders.

    Args:
        metric: a figure of all of them; empty: the loss divided by that of the best constant prediction.
        axis: "step", "events" or "time".
        smoothing: in [0, 1), see :func:`~headrace.runs.curves.smoothed`.
        rows: a point for each of the "windows" or of the "commits".

    Raises :class:`~transforms.errors.InputError` for a figure that a run does not have, :class:`~transforms.errors.NotFound` for a run without a
    history, and as :func:`shown`.
    """
    from headrace.runs.open_history import history_of
    from headrace.runs.trained_run import read_run

    histories = [history_of(read_run(folder)) for folder in folders]
    return drawn(folders, histories, metric=metric, axis=axis, smoothing=smoothing, rows=rows)


def readable_histories(folders: Sequence[str]) -> tuple[dict[str, History], dict[str, HeadraceError]]:
    """The histories of the runs in these folders, and of those that have none, or that cannot be read, the errors."""
    from headrace.runs.open_history import history_of
    from headrace.runs.trained_run import read_run
    from transforms.errors import HeadraceError

    histories, problems = {}, {}
    for folder in folders:
        try:
            histories[folder] = history_of(read_run(folder))
        except HeadraceError as error:
            problems[folder] = error
    return histories, problems


def drawn(
    folders: Sequence[str], histories: Sequence[History], *, metric: str = "", axis: Axis = "step", smoothing: float = 0.0, rows: Rows = "windows"
) -> CurvesScreen:  # fmt: skip
    """The curves of a figure of the histories of the runs in these folders. Arguments and errors as :func:`plotted`."""
    from headrace.runs.curves import AXES, curve_of, default_metric
    from headrace.screens.curves import CurvesScreen
    from transforms.errors import InputError

    if not folders:
        raise InputError("curves must be those of a run", where="runs", value="none is given", next_step="name a model, or the folder of a run")  # fmt: skip
    if axis not in AXES:
        raise InputError("an axis must be a known one", where="--x", value=axis, allowed=", ".join(AXES))
    if not 0.0 <= smoothing < 1.0:
        raise InputError("smoothing must be a number", where="--smoothing", value=smoothing, allowed="from 0 to below 1")  # fmt: skip
    chosen = metric or default_metric(histories)
    curves = [
        curve_of(name, history, chosen, axis, smoothing, rows)
        for name, history in zip(_names(folders), histories, strict=True)
    ]
    return CurvesScreen(chosen, axis, smoothing, tuple(curves))


def event_files(folder: str, to: EventFolder) -> EventFilesScreen:
    """Write the points of a run's history that its event files lack. Raises as :func:`plotted`, and :class:`~transforms.errors.StorageError`."""
    from headrace.runs.open_history import kept_history
    from headrace.runs.trained_run import read_run
    from headrace.screens.runs import EventFilesScreen

    run = read_run(folder)
    try:
        return EventFilesScreen(folder, to.place, to.add(kept_history(run)))
    finally:
        to.close()


def _names(folders: Sequence[str]) -> list[str]:
    """The names of folders; those that are alike have their whole paths."""
    short = [folder.partition("?")[0].rstrip("/").rpartition("/")[2] for folder in folders]
    return [name if short.count(name) == 1 else folder for name, folder in zip(short, folders, strict=True)]


def _row(path: Path, read: ReadRun | None, find: FindHold | None) -> RunRow:
    from headrace.runs.trained_run import read_run
    from headrace.screens.runs import RunRow
    from transforms.errors import HeadraceError, NotFound

    folder = str(path)
    try:
        run, problem = (read or read_run)(folder), ""
    except NotFound:
        run, problem = None, "no commit yet"
    except HeadraceError as error:  # a run that cannot be read must not hide the others
        run, problem = None, f"{error.what} ({error.where})"
    return RunRow(run, folder, path.name, state_of(folder, find), problem)


def state_of(folder: str, find: FindHold | None = None) -> str:
    """Whether a process trains the run now, or an error holds its job; "-" for a run in a bucket, which has no lock."""
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.holds import find_hold
    from trainer.run.progress.lock import is_locked
    from transforms.errors import HeadraceError, NotFound
    from warehouse.storage.locations import is_gcs

    if is_gcs(folder):
        return "-"
    try:
        if (find or find_hold)(JobFiles(Path(folder))) is not None:
            return "held"
    except NotFound:
        pass  # one process trains it
    except HeadraceError:
        return "damaged"
    return "training" if is_locked(Path(folder)) else "idle"


def evaluations(folder: str) -> tuple[EvaluatedCommit, ...]:
    """The figures of a run's commits on fixed ranges of events, in the order in which they were evaluated. Raises as :meth:`EvaluationLog.read`."""
    from trainer.run.progress.evaluation_log import EvaluationLog

    return EvaluationLog.read(folder).commits
