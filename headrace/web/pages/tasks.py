"""Pages of failed tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.screens.tasks import ChangeScreen
from headrace.views import tasks
from headrace.web.condition_form import FormFields
from headrace.web.site import PAGE_ROWS, Posted, Site, whole_number
from transforms.errors import InputError
from warehouse.quarantine.query import OPEN_STATES, TaskQuery
from warehouse.queue.failures import FailureKind
from warehouse.scheduling.task_states import TaskState

_STATES = {state.lower(): state for state in (*OPEN_STATES, TaskState.DROPPED)}
#: Values of an event that a page shows; a longer one is in the file of ``headrace tasks show --sample``.
MOST_VALUE = 500


@dataclass(frozen=True)
class TaskConditions(FormFields):
    """Conditions on failed tasks."""

    state: str = ""
    client: str = ""
    model: str = ""
    table: str = ""
    partition: str = ""
    component: str = ""
    operator: str = ""
    kind: str = ""
    exception: str = ""

    def query(self) -> TaskQuery:
        """The query. Raises :class:`InputError`."""
        if self.state and self.state not in _STATES:
            raise InputError(
                "the state must be one of failed tasks", where="state", value=self.state, allowed=", ".join(_STATES)
            )
        return TaskQuery(
            states=(_STATES[self.state],) if self.state else (),
            client=self.client or None,
            model=self.model or None,
            table=self.table or None,
            partition=self.partition or None,
            component=self.component or None,
            operator=self.operator or None,
            kind=self.kind or None,
            exception=self.exception or None,
        )


class TaskPages:
    """Failed tasks by cause, one by one, and what is done about them."""

    def __init__(self, site: Site) -> None:
        self._site, self._warehouse = site, site.warehouse

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/quarantine", self.quarantine),
            Route("/quarantine/tasks", self.tasks),
            Route("/quarantine/{task:int}", self.task),
            self._site.form("/quarantine/{task:int}/retry", self.retry),
            self._site.form("/quarantine/{task:int}/drop", self.drop),
        ]

    def quarantine(self, request: Request) -> Response:
        """Failed tasks, a row per equal failure."""
        conditions, offset = TaskConditions.of(request.query_params), whole_number(request, "offset")
        found = tasks.groups(self._warehouse, conditions.query(), limit=PAGE_ROWS, offset=offset)
        return self._site.page(request, "quarantine.html", found, conditions=conditions, states=_STATES, kinds=get_args(FailureKind),
                               rows=PAGE_ROWS)  # fmt: skip

    def tasks(self, request: Request) -> Response:
        """Failed tasks, a row each."""
        conditions, offset = TaskConditions.of(request.query_params), whole_number(request, "offset")
        found = tasks.page(self._warehouse, conditions.query(), limit=PAGE_ROWS, offset=offset)
        return self._site.page(request, "failed_tasks.html", found, conditions=conditions, rows=PAGE_ROWS)

    def task(self, request: Request) -> Response:
        """One task: its failure, and the smallest sample of events on which it fails."""
        found = tasks.shown(self._warehouse, str(request.path_params["task"]))
        return self._site.page(request, "failed_task.html", found, most_value=MOST_VALUE)

    def retry(self, form: Posted) -> str:
        """Queue a task, or all failed ones of its component, again."""
        number = form.request.path_params["task"]
        _require_done(tasks.retried(self._warehouse, self._chosen(form, number), dry_run=False))
        return f"/quarantine/{number}"

    def drop(self, form: Posted) -> str:
        """Remove a task, or all failed ones of its component, from the queue."""
        if not form["why"]:
            raise InputError(
                "a reason must be given",
                where="reason",
                value="",
                next_step="say why readers shall compute the columns",
            )
        number = form.request.path_params["task"]
        done = tasks.dropped(self._warehouse, self._chosen(form, number), why=form["why"], who=form.who, dry_run=False)
        _require_done(done)
        return f"/quarantine/{number}"

    def _chosen(self, form: Posted, number: int) -> TaskQuery:
        if form["which"] == "alike":
            return TaskQuery(component=tasks.shown(self._warehouse, str(number)).fingerprint)
        return TaskQuery((number,))


def _require_done(screen: ChangeScreen) -> None:
    if not screen.change.tasks:
        raise InputError("a task must be failed, or wait for its next attempt, to be changed", where="quarantine", value=screen.change.request,
                         next_step="open the task again: a worker may have it, or another user may have changed it")  # fmt: skip
