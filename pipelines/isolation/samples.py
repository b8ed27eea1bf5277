"""The smallest sample of events that makes a component fail; every trial runs in a child under the same limits.

A trial that stalls takes its whole time limit. Such a search uses a shorter limit, and its result is verified once with the
full one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.fragments.progress_cell import Phase
from pipelines.isolation.answer import Answer
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.processes import Child, ChildProcesses, ProcessEnd
from pipelines.isolation.shrink import Budget, Rows, find_smallest, ranges_of
from warehouse.queue.failures import Failure

#: The limits of one search, without its first and its last trial.
SEARCH_TRIALS, SEARCH_SECS = 1_000, 60.0
#: The shorter time limit: this share of the full one, and at least so many seconds; and the trials that extend the search.
_HURRIED_SHARE, _HURRIED_SECS, _HURRIED_TRIALS = 0.05, 5.0, 20
#: A larger sample is not stored.
_MOST_EVENTS = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """A component that fails over a fragment of ``rows`` events; ``work``: of this component alone, as JSON."""

    home: str
    work: str
    rows: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class _Symptom:
    """A failure of a trial, comparable with others."""

    failure: Failure
    exceptions: tuple[str, ...] = ()

    def is_like(self, other: _Symptom | None) -> bool:
        """Whether kind, operator, expression and exceptions are the same."""
        return other is not None and self._key == other._key

    @property
    def _key(self) -> tuple[object, ...]:
        failure = self.failure
        return failure.kind, failure.operator, failure.expression, self.exceptions if failure.kind == "raised" else ()


def find_sample(
    case: Case, processes: ChildProcesses, limits: IsolationLimits, secs: float = SEARCH_SECS,
    likely: Sequence[Rows] = (),
) -> Failure:  # fmt: skip
    """The case's failure with the smallest sample found; unchanged if the component alone does not fail again.

    A failure that raised is replaced by that of the component alone, which is not fused with others. ``likely`` are samples
    of other components, tried first. Deterministic unless the search takes longer than ``secs``.
    """
    with ExitStack() as stack:
        trials = _Trials(case, processes, limits, stack)
        whole = np.arange(case.rows, dtype=np.int64)
        symptom = trials.find_symptom(whole) if case.rows else None
        if symptom is None:
            return case.failure
        budget = Budget(SEARCH_TRIALS, secs + _HURRIED_TRIALS * trials.hurry_secs)

        def fails(rows: Rows) -> bool:
            return symptom.is_like(trials.symptom(rows))

        start = next((rows for rows in likely if len(rows) < case.rows and budget.spend() and fails(rows)), whole)
        found = find_smallest(start, fails, budget)
        sample = trials.sample(found) if len(found) <= _MOST_EVENTS and trials.confirms(found, symptom) else ""
        said = symptom.failure if case.failure.kind == "raised" else case.failure
        return replace(said, events=tuple(int(row) for row in found) if sample else (), sample=sample)


class _Trials:
    """Trials of one component on some of its events; they share a child until it ends."""

    def __init__(self, case: Case, processes: ChildProcesses, limits: IsolationLimits, stack: ExitStack) -> None:
        self._case, self._processes, self._limits, self._stack = case, processes, limits, stack
        self._hurried = limits
        if case.failure.kind == "stalled":
            secs = max(_HURRIED_SHARE * limits.stall_secs, _HURRIED_SECS)
            self._hurried = replace(limits, stall_secs=min(secs, limits.stall_secs))
        self._child: Child | None = None
        self._steps: dict[tuple[int, int | None], tuple[str, str]] = {}

    @property
    def hurry_secs(self) -> float:
        """The time of a trial that stalls; 0 for other failures."""
        return self._hurried.stall_secs if self._case.failure.kind == "stalled" else 0.0

    def find_symptom(self, whole: Rows) -> _Symptom | None:
        """The symptom of all events together; None if its kind is not the failure's."""
        found = self.symptom(whole)
        if found is not None and found.failure.operator != self._case.failure.operator and self.hurry_secs:
            self._hurried = self._limits  # an earlier step takes long too, and ends
            found = self.symptom(whole)
        return found if found is not None and found.failure.kind == self._case.failure.kind else None

    def symptom(self, rows: Rows) -> _Symptom | None:
        """How the component fails on these events; None if it does not, or the trial is impossible."""
        request = {"do": "try", "home": self._case.home, "rows": ranges_of(rows)}
        answer = self._ask(request)
        if isinstance(answer, ProcessEnd):
            operator, expression = self._step(answer)
            return _Symptom(Failure(answer.kind, answer.description, operator, expression))
        document = answer.document
        if "out_of_memory" in document:
            return _Symptom(Failure("memory", document["out_of_memory"]))
        if document.get("failure") is None:
            return None
        return _Symptom(Failure.from_document(document["failure"]), tuple(document["exceptions"]))

    def confirms(self, rows: Rows, symptom: _Symptom) -> bool:
        """Whether these events still fail under the full time limit."""
        if self._hurried == self._limits:
            return True
        self._hurried = self._limits
        return symptom.is_like(self.symptom(rows))

    def sample(self, rows: Rows) -> str:
        """The events as text; empty if they are too large or no longer readable."""
        answer = self._ask({"do": "sample", "home": self._case.home, "rows": ranges_of(rows)})
        return str(answer.document.get("sample", "")) if isinstance(answer, Answer) else ""

    def _step(self, ended: ProcessEnd) -> tuple[str, str]:
        """The operator and expression of the step in which a child ended."""
        position = ended.position
        if not position.is_timed and position.phase is not Phase.LOADING:
            return "", ""
        key = position.step, position.single_component
        if key not in self._steps:
            answer = self._ask(
                {
                    "do": "describe",
                    "home": self._case.home,
                    "step": position.step,
                    "single_component": position.single_component,
                }
            )
            known = answer.document if isinstance(answer, Answer) else {}
            self._steps[key] = str(known.get("operator", "")), str(known.get("expression", ""))
        return self._steps[key]

    def _ask(self, request: Mapping[str, Any]) -> Answer | ProcessEnd:
        if self._child is None or self._child.is_ended:
            self._stack.close()
            fresh = self._case.failure.kind != "raised"
            self._child = self._stack.enter_context(self._processes.child(self._limits, fresh=fresh))
        return self._child.ask(request, self._case.work, self._hurried)
