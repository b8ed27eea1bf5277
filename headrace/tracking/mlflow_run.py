"""A run in MLflow: its options as parameters, and the points of its metric history."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.runs.trained_run import read_run
from headrace.tracking.mlflow_server import MlflowServer
from headrace.tracking.points import COMMITS, WINDOWS, new_points
from trainer.run.history.run_history import RunHistory
from transforms.errors import StorageError
from warehouse.storage.storage import Storage

#: The file beside the run's that names its run in MLflow.
MLFLOW_FILE: Final = "mlflow.json"
#: Options that say why others were chosen.
_REASONS: Final = ("chosen", "trial")


class MlflowRun:
    """The run in MLflow of the run in ``folder``; a call that goes on with the run goes on with it, too.

    Which points the server has is asked of the server, so a killed training leaves each point once. MLflow cannot take points back: a run that
    goes on from an older commit becomes another run there.

    Args:
        folder: of the run.
        files: a local folder of the run, for the file that names the run in MLflow.
        experiment: the name of the experiment.
        name: of the run.
        now: epoch seconds.
    """

    def __init__(
        self, server: MlflowServer, folder: str, files: Path, experiment: str, name: str, now: Callable[[], float]
    ) -> None:
        self._server, self._folder, self._files = server, folder, files
        self._experiment, self._name, self._now = experiment, name, now
        self._run: str | None = None
        self._known: dict[str, int] | None = None

    @property
    def place(self) -> str:
        """The address of the server."""
        return self._server.uri

    def add(self, history: RunHistory) -> int:
        """Add the points that the server lacks, and return their number. Raises :class:`StorageError`."""
        known = self._known if self._known is not None else self._ask(history)
        self._known = None  # asked again after an error
        if any(step > history.step for step in known.values()):
            known = self._begin(history)
        points = new_points(history, known)
        assert self._run is not None
        self._server.log_points(self._run, points)
        self._known = {**known, **{point.kind: point.step for point in points}}
        return len(points)

    def close(self) -> None:
        """Mark the run as finished."""
        if self._run is not None:
            self._server.set_status(self._run, "FINISHED", self._now())

    def _ask(self, history: RunHistory) -> dict[str, int]:
        """The newest steps that the server has; a run is made if there is none."""
        self._run = self._run or self._read_name()
        steps = None if self._run is None else self._server.newest_steps(self._run)
        if steps is None or self._run is None:
            return self._begin(history)
        self._server.set_status(self._run, "RUNNING", self._now())
        return {
            kind: max((step for name, step in steps.items() if name.startswith(f"{kind}/")), default=0)
            for kind in (WINDOWS, COMMITS)
        }

    def _begin(self, history: RunHistory) -> dict[str, int]:
        run = read_run(self._folder)
        ended = history.layout.column(history.windows, "ended_at")
        at_secs = float(ended[0]) if len(ended) else self._now()
        tags = {
            "headrace.run": self._folder,
            "headrace.table": run.identity.table,
            "headrace.label": run.identity.label,
        }
        experiment = self._server.experiment(self._experiment)
        self._run = self._server.create_run(experiment, self._name, at_secs, tags)
        self._write_name(self._run)
        options = {name: str(value) for name, value in sorted(run.options.items()) if name not in _REASONS}
        self._server.log_parameters(self._run, options)
        return {WINDOWS: 0, COMMITS: 0}

    @property
    def _path(self) -> Path:
        return self._files / MLFLOW_FILE

    def _read_name(self) -> str | None:
        """The run in MLflow on this server; None for a run without one."""
        try:
            found = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageError("the file that names a run in MLflow must be a JSON object", where=str(self._path), value=str(error),
                               next_step="remove it: another run is made in MLflow") from error  # fmt: skip
        if not isinstance(found, dict) or found.get("uri") != self._server.uri:
            return None
        run = found.get("run_id")
        return run if isinstance(run, str) and run else None

    def _write_name(self, run: str) -> None:
        storage = Storage(str(self._files))
        storage.write_atomic(
            f"{storage.root}/{MLFLOW_FILE}", json.dumps({"uri": self._server.uri, "run_id": run}).encode()
        )
