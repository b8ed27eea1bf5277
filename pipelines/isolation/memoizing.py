"""Memoize one fragment in child processes, so that a failing component affects no other.

All components are computed together. Only if the child fails are they tried apart (:mod:`pipelines.isolation.bisection`),
and only a failed component gets a search for its sample.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from pipelines.fragments.encoded_result import EncodedResult, ResultCounts, decode_line
from pipelines.fragments.progress_cell import Phase, Position
from pipelines.fragments.work import FragmentResult, FragmentWork, merge_results
from pipelines.isolation.answer import Answer
from pipelines.isolation.bisection import Attempt, ProcessFailure, record_attempt, start_bisection
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.processes import ChildProcesses, ProcessEnd
from pipelines.isolation.samples import SEARCH_SECS, Case, find_sample
from pipelines.isolation.shrink import Rows
from pipelines.runners.error_documents import error_from_document
from warehouse.queue.failures import Failure

#: The time limit of all searches for samples of one component in this process: one defect fails in many fragments.
_SECS_OF_COMPONENT = 600.0
#: After this time no search starts for another component of a fragment, whose finished memos wait for their commit.
_SECS_OF_FRAGMENT = 120.0
_DESCRIBING_TRIES = 3

_LOG = logging.getLogger(__name__)


class KnownCulprits:
    """Culprits of earlier fragments, which are tried apart, and the time of their searches. By fingerprint. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._columns: set[str] = set()
        self._secs: defaultdict[str, float] = defaultdict(float)

    @property
    def columns(self) -> frozenset[str]:
        """The components that made a process fail."""
        with self._lock:
            return frozenset(self._columns)

    def add(self, columns: Iterable[str]) -> None:
        """Add components that made a process fail."""
        with self._lock:
            self._columns.update(columns)

    def search_secs_left(self, column: str) -> float:
        """The time left for searches of a component's samples."""
        with self._lock:
            return _SECS_OF_COMPONENT - self._secs[column]

    def add_search_secs(self, column: str, secs: float) -> None:
        """Count the time of a search."""
        with self._lock:
            self._secs[column] += secs


def memoize_isolated(
    text: str,
    home: str,
    processes: ChildProcesses,
    limits: IsolationLimits,
    known_culprits: KnownCulprits,
    components: str = "[]",
) -> EncodedResult:
    """Run :func:`~pipelines.fragments.run.memoize_fragment` in children, for the work in ``text``.

    A component that exceeds ``limits``, or whose process ends, fails alone, like one that raises. Failures of steps have a
    sample. ``components`` is the JSON list of documents that the work refers to by position.

    Raises:
        StorageError: The memo file cannot be written.
    """
    run = _Run(text, home, processes, limits, components)
    if not known_culprits.columns and (result := run.run_all()) is not None:
        return result
    plan = start_bisection([wanted.column for wanted in run.work.components], known_culprits.columns)
    while (attempt := plan.next_attempt) is not None:
        done, failure, was_new = run.run_attempt(attempt)
        plan = record_attempt(plan, done, failure, fresh=was_new)
    known_culprits.add(plan.culprits)
    if run.ends and not plan.culprits:  # no failure is recorded
        _LOG.warning("%s was computed in parts or again, but no component is a culprit: %s",
                     run.work.fragment.path, "; ".join(dict.fromkeys(run.ends)))  # fmt: skip
    return EncodedResult.encode(run.result(plan.culprits, known_culprits))


class _Run:
    """The attempts at one fragment: their results, and the failures of components without a result."""

    def __init__(
        self, text: str, home: str, processes: ChildProcesses, limits: IsolationLimits, components: str
    ) -> None:
        self._text, self._home, self._processes, self._limits = text, home, processes, limits
        self._components = components
        self._first: tuple[Answer | ProcessEnd, bool] | None = None
        self._parts: list[FragmentResult] = []
        self._failures: dict[str, Failure] = {}
        #: How attempts without a whole result ended.
        self.ends: list[str] = []

    @cached_property
    def work(self) -> FragmentWork:
        """The work, decoded only if it is needed."""
        return FragmentWork.from_json(self._text, json.loads(self._components))

    def run_all(self) -> EncodedResult | None:
        """The child's encoded result if no component failed, else None; the plan's first attempt then has the answer."""
        self._first = self._ask(self._text, fresh=False)
        answer, _ = self._first
        if isinstance(answer, ProcessEnd) or not answer.line:
            return None
        counts = ResultCounts(*answer.document["counts"])
        return None if counts.components_failed else EncodedResult(answer.line, counts)

    def _ask(self, text: str, *, fresh: bool) -> tuple[Answer | ProcessEnd, bool]:
        """The answer of a child, and whether the child was new."""
        with self._processes.child(self._limits, fresh=fresh) as child:
            was_new = child.is_new
            request = {"do": "memoize", "home": self._home}
            return child.ask(request, text, self._limits, self._components), was_new

    def run_attempt(self, attempt: Attempt) -> tuple[frozenset[str], ProcessFailure | None, bool]:
        """The components with a result, the failure of the others, and whether the child was new."""
        whole = len(attempt.components) == len(self.work.components)
        text = self._text if whole else self.work.only(attempt.components).to_json()
        answer, was_new = self._first or self._ask(text, fresh=attempt.fresh)
        self._first = None
        if isinstance(answer, ProcessEnd):
            return frozenset(), self._record_end(attempt, text, answer), was_new
        document = answer.document
        if "storage_error" in document:
            raise error_from_document(document["storage_error"])
        if "defect" in document:
            _LOG.error("a defect of Headrace, please report it:\n%s", document["defect"]["traceback"])
            failure = Failure("defect", document["defect"]["error"])
            self._failures.update(dict.fromkeys(attempt.components, failure))
            return frozenset(), ProcessFailure("defect"), was_new
        if "out_of_memory" in document:
            self.ends.append(document["out_of_memory"])
            self._failures.update(dict.fromkeys(attempt.components, Failure("memory", document["out_of_memory"])))
            return frozenset(), ProcessFailure("memory"), was_new
        part = decode_line(answer.line, "answer of a child process")
        self._parts.append(part)
        exhausted = {one.column: one.failure for one in part.outcomes if one.failure and one.failure.kind == "memory"}
        self._failures.update(exhausted)
        self.ends += dict.fromkeys(failure.error for failure in exhausted.values())
        failed = ProcessFailure("memory", frozenset(exhausted)) if exhausted else None
        return frozenset(attempt.components) - exhausted.keys(), failed, was_new

    def _record_end(self, attempt: Attempt, text: str, ended: ProcessEnd) -> ProcessFailure:
        how = _describe_end(ended, self._limits)
        self.ends.append(how)
        operator, expression, candidates = self._step(attempt, text, ended.position)
        failure = Failure(ended.kind, how, operator, expression)
        self._failures.update(dict.fromkeys(candidates or attempt.components, failure))
        return ProcessFailure(ended.kind, candidates)

    def _step(self, attempt: Attempt, text: str, position: Position) -> tuple[str, str, frozenset[str]]:
        """The operator and expression of a step and the components that need it; empty if unknown."""
        if position.phase not in (Phase.RUNNING, Phase.LOADING):
            return (
                "",
                "",
                frozenset()
                if position.single_component is None
                else frozenset({attempt.components[position.single_component]}),
            )
        request = {
            "do": "describe",
            "home": self._home,
            "step": position.step,
            "single_component": position.single_component,
        }
        for _ in range(_DESCRIBING_TRIES):
            with self._processes.child(self._limits) as child:
                answer = child.ask(request, text, self._limits, self._components)
            if isinstance(answer, Answer) and "operator" in answer.document:
                step = answer.document
                return step["operator"], step["expression"], frozenset(step["components"])
        return "", "", frozenset()

    def result(self, culprits: Iterable[str], known_culprits: KnownCulprits) -> FragmentResult:
        """The merged result, each failure with its sample."""
        result = merge_results(self.work, self._parts, {column: self._failures[column] for column in culprits})
        failures: dict[str, Failure] = {}
        likely: list[Rows] = []
        started_at = time.monotonic()
        for outcome in result.outcomes:
            if time.monotonic() - started_at >= _SECS_OF_FRAGMENT:
                break
            if outcome.failure is not None and outcome.failure.operator:
                found = self._find_sample(outcome.column, outcome.failure, known_culprits, likely)
                failures[outcome.column] = found
                if found.events:
                    likely.append(np.array(found.events, np.int64))
        return merge_results(
            self.work, self._parts, {**{column: self._failures[column] for column in culprits}, **failures}
        )

    def _find_sample(self, column: str, failure: Failure, known_culprits: KnownCulprits, likely: list[Rows]) -> Failure:
        secs = min(SEARCH_SECS, known_culprits.search_secs_left(column))
        if secs <= 0:
            return failure
        case = Case(self._home, self.work.only({column}).to_json(), self.work.fragment.rows, failure)
        started_at = time.monotonic()
        found = find_sample(case, self._processes, self._limits, secs, likely)
        known_culprits.add_search_secs(column, time.monotonic() - started_at)
        return found


def _describe_end(ended: ProcessEnd, limits: IsolationLimits) -> str:
    doing = {Phase.READING: "reading its columns ", Phase.COMPILING: "compiling it ", Phase.WRITING: "writing it "}
    during = doing.get(ended.position.phase, "")
    match ended.kind:
        case "memory":
            return f"{during}needed more than {limits.memory_bytes / 1e9:.1f} GB"
        case "stalled":
            return f"{during}took more than {limits.stall_secs:g} s"
        case "lost" | "defect":
            return f"while {during.rstrip()}, {ended.description}" if during else ended.description
