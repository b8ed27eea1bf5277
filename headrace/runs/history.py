"""The figures of a run's metric history as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.data_frames import frame_library
from trainer.run.history.figures import figures
from trainer.run.history.run_history import RunHistory
from transforms.arrays import Array
from transforms.errors import InputError

#: A row for each window of steps, or for each commit.
Rows = Literal["windows", "commits"]
ROWS: Final[tuple[Rows, ...]] = ("windows", "commits")

_OTHERWISE = "use the columns in windows and commits"


@dataclass(frozen=True, eq=False)
class History:
    """The figures of the windows and the commits of a run, see ``docs/runs.md``.

    Attributes:
        run: the folder of the run.
        first_step: the steps before the history began, with an earlier release; 0 for a run that began with it.
        window_steps: the steps of a window.
        windows, commits: columns by name, float64 each; NaN where a figure is not defined or not measured.
    """

    run: str
    first_step: int
    window_steps: int
    windows: Mapping[str, Array]
    commits: Mapping[str, Array]

    @classmethod
    def of(cls, run: str, history: RunHistory) -> History:
        """The figures of a history that was read."""
        of_windows, of_commits = (figures(history.layout, rows) for rows in (history.windows, history.commits))
        return cls(run, history.first_step, history.window_steps, of_windows, of_commits)

    def columns(self, rows: Rows = "windows") -> Mapping[str, Array]:
        """The columns of ``"windows"`` or ``"commits"``. Raises :class:`InputError` for other rows."""
        if rows not in ROWS:
            raise InputError("rows must be windows or commits", where="rows", value=rows, allowed=", ".join(ROWS))
        return self.windows if rows == "windows" else self.commits

    def to_arrow(self, rows: Rows = "windows") -> Any:
        """A ``pyarrow.Table``; figures that are not defined are null."""
        import pyarrow as pa

        return pa.table({name: pa.array(values, from_pandas=True) for name, values in self.columns(rows).items()})

    def to_polars(self, rows: Rows = "windows") -> Any:
        """A ``polars.DataFrame``; figures that are not defined are null. Raises :class:`InputError` if it is not installed."""
        return frame_library("polars", where="to_polars", otherwise=_OTHERWISE).from_arrow(self.to_arrow(rows))

    def to_pandas(self, rows: Rows = "windows") -> Any:
        """A ``pandas.DataFrame``; figures that are not defined are NaN. Raises :class:`InputError` if it is not installed."""
        return frame_library("pandas", where="to_pandas", otherwise=_OTHERWISE).DataFrame(dict(self.columns(rows)))
