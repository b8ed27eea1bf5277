"""Pages of the runs of a home: all of them, one, its checkpoints, the curves of several, and the differences between two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.runs.run_folders import RUNS, folders_of_home
from headrace.screens.curve_drawing import MOST_CURVES
from headrace.screens.runs import change_text, newest_epochs, normalized_losses, option_text, value_text
from headrace.screens.score_figures import figure_table
from headrace.views import checkpoints, holds, run_plans, runs
from headrace.web.rendering import address_part
from headrace.web.site import PAGE_ROWS, Site, checked_part, number_part, picture, readable
from transforms.errors import HeadraceError, InputError, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.screens.checkpoints import CheckpointsScreen
    from headrace.screens.curves import CurvesScreen
    from headrace.screens.holds import HoldRow

#: Names that are those of other pages.
_OTHERS = ("curves", "diff")
#: The state of a run that a process trains.
TRAINING = "training"


def address_of_run(name: str) -> str:
    """The address of the page of a run; empty for a run whose name no address can have."""
    part = address_part(name)
    return f"/{RUNS}/{part}" if part and name not in _OTHERS else ""


def address_of_hold(folder: Path) -> str:
    """The address of the hold of the job in a folder of the home; empty for a name that no address can have."""
    part = address_part(folder.name)
    return f"/holds/{folder.parent.name}/{part}" if part else ""


def run_folder(site: Site, request: Request) -> Path:
    """The folder of the run that an address names. Raises :class:`NotFound`."""
    return _named(site, checked_part(request, "name", _names(site), "a run of the home"))


def _names(site: Site) -> list[str]:
    return [path.name for path in folders_of_home(site.folder)]


def _named(site: Site, name: str) -> Path:
    return site.folder / RUNS / name


class RunPages:
    """Pages of runs."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/runs", self.runs),
            Route("/runs/curves", self.curves),
            Route("/runs/curves/drawing.svg", self.drawing),
            Route("/runs/diff", self.diff),
            Route("/runs/{name}", self.run),
            Route("/runs/{name}/checkpoints", self.checkpoints),
            Route("/runs/{name}/checkpoints/{epochs}", self.checkpoint),
        ]

    def runs(self, request: Request) -> Response:
        """The runs of the home."""
        found = runs.listed(str(self._site.folder), self._site.runs.read, self._site.holds.find)
        is_live = any(row.state == TRAINING for row in found.runs)
        held = sum(row.state == "held" for row in found.runs)
        return self._site.page(request, "runs.html", found, figures=found.figures(), held=held, address_of=address_of_run, is_live=is_live)  # fmt: skip

    def run(self, request: Request) -> Response:
        """One run; of one that cannot be read the reason, and what holds it."""
        folder = run_folder(self._site, request)
        shared = {"name": folder.name, "hold": _hold(folder), "hold_address": address_of_hold(folder)}
        try:
            found = runs.shown(str(folder))
        except HeadraceError as error:
            if request.query_params.get("format") == "json":
                raise
            state = runs.state_of(str(folder))
            return self._site.page(request, "unreadable_run.html", None, **shared, error=error, state=state, is_live=state == TRAINING)  # fmt: skip
        newest = newest_epochs(found.run)
        problems: list[HeadraceError] = []
        evaluations = readable(lambda: runs.evaluations(str(folder))[-PAGE_ROWS:], (), problems)
        commits = readable(lambda: checkpoints.listed(str(folder)), None, problems)
        return self._site.page(
            request,
            "run.html",
            found,
            **shared,
            pairs=found.place(),
            epochs=figure_table((one, one.scores) for one in newest),
            shown_epochs=len(newest),
            held_out=None if found.run.held_out is None else figure_table([("", found.run.held_out)]),
            evaluations=figure_table((one, one.scores) for one in evaluations),
            commits=commits,
            problems=problems,
            has_towers=run_plans.has_towers(str(folder)),
            is_live=found.state == TRAINING,
        )

    def checkpoints(self, request: Request) -> Response:
        """The checkpoints of a run."""
        folder = run_folder(self._site, request)
        found: CheckpointsScreen = checkpoints.listed(str(folder))
        return self._site.page(request, "checkpoints.html", found, name=folder.name)

    def checkpoint(self, request: Request) -> Response:
        """What a checkpoint holds."""
        folder = run_folder(self._site, request)
        found = checkpoints.shown(str(folder), number_part(request, "epochs"), lambda sentence: None)
        return self._site.page(request, "checkpoint.html", found, name=folder.name)

    def diff(self, request: Request) -> Response:
        """The differences between two runs, ``first`` and ``second``, or those that were chosen in the list."""
        query = request.query_params
        named = [query[one] for one in ("first", "second") if query.get(one)] or query.getlist("run")
        if len(named) != 2:
            raise InputError("differences must be those of two runs", where="runs", value=f"{len(named)} named", allowed="first and second",
                             next_step="choose two on the page of runs")  # fmt: skip
        found = runs.compared(*self._folders(named))
        return self._site.page(request, "run_diff.html", found, address_of=address_of_run, option_text=option_text, value_text=value_text,
                               change_text=change_text, losses=normalized_losses(found.comparison.common_epochs))  # fmt: skip

    def curves(self, request: Request) -> Response:
        """The curves of a figure of some runs; of those without a history the reasons."""
        from headrace.runs.curves import AXES, common_metrics
        from headrace.runs.history import ROWS

        screen, histories, problems = self._curves(request)
        query = request.query_params.multi_items()
        return self._site.page(
            request,
            "curves.html",
            screen,
            problems={Path(folder).name: error for folder, error in problems.items()},
            metrics=common_metrics(list(histories.values()), _rows_of(request)),
            axes=AXES,
            rows_of=ROWS,
            chosen_rows=_rows_of(request),
            names=[Path(folder).name for folder in (*histories, *problems)],
            all_names=[one for one in _names(self._site) if address_part(one)],
            drawing=urlencode([one for one in query if one[0] not in ("refresh", "format")]),
            address_of=address_of_run,
            is_live=any(runs.state_of(folder) == TRAINING for folder in histories),
        )

    def drawing(self, request: Request) -> Response:
        """The drawing of curves, as a picture of its page."""
        return picture(self._curves(request)[0].svg())

    def _curves(self, request: Request) -> tuple[CurvesScreen, dict[str, Any], dict[str, HeadraceError]]:
        query = request.query_params
        named = list(dict.fromkeys(query.getlist("run")))
        if len(named) > MOST_CURVES:
            raise InputError("the lines of a drawing must be so few that their colours and dashes differ", where="run", value=f"{len(named)} runs",
                             allowed=f"at most {MOST_CURVES}")  # fmt: skip
        histories, problems = runs.readable_histories(self._folders(named))
        if problems and not histories:
            raise next(iter(problems.values()))
        axis, smoothing = query.get("x", "") or "step", _number(query.get("smoothing", "") or "0")
        screen = runs.drawn(list(histories), list(histories.values()), metric=query.get("metric", ""), axis=axis, smoothing=smoothing,  # type: ignore[arg-type]
                            rows=_rows_of(request))  # fmt: skip
        return screen, histories, problems

    def _folders(self, named: Sequence[str]) -> list[str]:
        known = _names(self._site)
        for name in named:
            if name not in known:
                raise NotFound("a run must be one of the home", where="run", value=name, next_step="see the page of runs")  # fmt: skip
        return [str(_named(self._site, name)) for name in named]


def _rows_of(request: Request) -> Any:
    return request.query_params.get("rows", "") or "windows"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError("smoothing must be a number", where="smoothing", value=text, allowed="from 0 to below 1") from None  # fmt: skip


def _hold(folder: Path) -> HoldRow | None:
    return next(iter(holds.held([folder], are_named=False).holds), None)
