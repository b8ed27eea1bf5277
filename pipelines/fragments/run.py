"""Compute one fragment in this process: one read of its raw columns, one plan, one memo file.

A component that raises fails alone. One that exhausts memory or stalls affects the whole process; therefore workers call
this in a child (:mod:`pipelines.isolation`), which writes its position to a progress cell.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pipelines.fragments.progress_cell import Phase, ProgressCell
from pipelines.fragments.work import (
    ComponentOutcome,
    FragmentResult,
    FragmentWork,
    PhaseSecs,
    WantedComponent,
    sum_phases,
)
from transforms.errors import DataError, HeadraceError, OtherRelease, StorageError, UnknownColumn
from transforms.execution.operator_costs import OperatorWork, sum_operator_work
from transforms.execution.plan import ComponentFailure, Plan, compile_plan, one_line
from transforms.graphs.artifacts import Artifacts, no_artifacts
from transforms.graphs.graph import component_from_document
from warehouse.errors import MissingFile
from warehouse.files.artifacts import ArtifactSource
from warehouse.files.column_files import MemoFile, NewFile
from warehouse.files.memo_file import memo_path_of, write_memo_file
from warehouse.queue.failures import Failure, FailureKind
from warehouse.storage.storage import Storage
from warehouse.tables.raw import read_raw

#: Enough rows for nulls and the most frequent lengths.
_WARMING_ROWS = 256
_PLANS_KEPT = 16
#: Errors of this machine; another one may read the file, or this one later.
_UNREADABLE = (StorageError, MissingFile)


class PlanCache:
    """Compiled plans by their components; the least recently used ones are dropped. Thread-safe."""

    def __init__(self, kept: int = _PLANS_KEPT) -> None:
        self._plans: OrderedDict[tuple[str, ...], Plan] = OrderedDict()
        self._kept = kept
        self._lock = threading.Lock()
        self._warm: set[tuple[str, ...]] = set()
        self.compiled = 0

    def plan(self, components: Sequence[WantedComponent], artifacts: Artifacts = no_artifacts) -> Plan:
        """The plan whose keys are the components' columns. Raises what :func:`compile_plan` raises."""
        key = tuple(sorted(component.column for component in components))
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                roots = {wanted.column: component_from_document(dict(wanted.component)) for wanted in components}
                found = self._plans[key] = compile_plan(roots, artifacts)
                self.compiled += 1
            self._plans.move_to_end(key)
            while len(self._plans) > self._kept:
                self._plans.popitem(last=False)
        return found

    def warm(self, components: Sequence[WantedComponent], plan: Plan, raw: pa.Table, cell: ProgressCell) -> None:
        """Run a plan on a few rows before its first use in this process, and drop the result.

        This compiles kernels that are not cached on this machine, so that no component's measured time includes it.
        """
        key = tuple(sorted(component.column for component in components))
        with self._lock:
            if key not in self._warm:
                plan.run(raw.slice(0, _WARMING_ROWS), cell.enter_step, checked=True)
                self._warm.add(key)


@dataclass(frozen=True, slots=True)
class _Computed:
    columns: Mapping[str, pa.Array]
    failures: Mapping[str, Failure]
    secs: Mapping[str, float]
    raw_bytes: int
    operators: tuple[OperatorWork, ...] = ()
    phases: PhaseSecs = field(default_factory=PhaseSecs)


def memoize_fragment(
    storage: Storage, work: FragmentWork, plans: PlanCache, cell: ProgressCell | None = None
) -> FragmentResult:
    """Compute every component of ``work`` and write those that succeed to one file, whole or not at all.

    The memo file depends on the components and the raw columns' bytes only. A component fails alone if its operators
    raise, if a raw column that it reads is unreadable or has changed since it was registered, or if its operators belong to
    another release. Raises :class:`~transforms.errors.StorageError` when the memo file cannot be written.
    """
    cell = cell or ProgressCell()
    computed = _compute(storage, work, plans, cell)
    cell.enter(Phase.WRITING)
    # A file with fewer columns has another name: a late worker with a failed component must not overwrite a whole file.
    keys = [memo_key for memo_key, column, _ in work.components if column in computed.columns]
    file = memo_path_of(work.output, keys)
    started = time.perf_counter()
    written = write_memo_file(storage, file, computed.columns) if keys else None
    phases = replace(computed.phases, writing=time.perf_counter() - started)
    outcomes = tuple(_outcome(wanted, computed, written) for wanted in work.components)
    rows = work.fragment.rows
    files = () if written is None else (NewFile(written.path, written.checksum, rows, written.size_bytes),)
    return FragmentResult(
        work.fragment.fragment_id, work.output, files, rows, computed.raw_bytes, outcomes, computed.operators, phases
    )


def _outcome(wanted: WantedComponent, computed: _Computed, written: MemoFile | None) -> ComponentOutcome:
    memo_key, column, _ = wanted
    if written is None or column in computed.failures:
        return ComponentOutcome(memo_key, column, computed.failures[column])
    stored = written.columns[column]
    return ComponentOutcome(
        memo_key, column, None, stored.checksum, stored.rows, stored.size_bytes, computed.secs[column], written.path
    )


def _compute(storage: Storage, work: FragmentWork, plans: PlanCache, cell: ProgressCell) -> _Computed:
    """Compute all components together; if that fails, one by one, so that only the culprits fail."""
    cell.select_component(None)
    try:
        return _run(storage, work, plans, cell)
    except Exception as error:  # of any kind: it is the component's failure, or occurs again one by one
        if len(work.components) == 1:
            return _Computed({}, {work.components[0].column: failure_of(error)}, {}, 0)
    parts = [_compute_alone(storage, work, which, plans, cell) for which in range(len(work.components))]
    return _Computed(
        columns={column: array for part in parts for column, array in part.columns.items()},
        failures={column: failure for part in parts for column, failure in part.failures.items()},
        secs={column: secs for part in parts for column, secs in part.secs.items()},
        raw_bytes=sum(part.raw_bytes for part in parts),
        operators=sum_operator_work(measured for part in parts for measured in part.operators),
        phases=sum_phases(part.phases for part in parts),
    )


def _compute_alone(storage: Storage, work: FragmentWork, which: int, plans: PlanCache, cell: ProgressCell) -> _Computed:
    cell.select_component(which)
    wanted = work.components[which]
    try:
        return _run(storage, work.only({wanted.column}), plans, cell)
    except Exception as error:  # of any kind: it is this component's failure
        return _Computed({}, {wanted.column: failure_of(error)}, {}, 0)


def _run(storage: Storage, work: FragmentWork, plans: PlanCache, cell: ProgressCell) -> _Computed:
    components = work.components
    cell.enter(Phase.COMPILING)
    plan = plans.plan(components, ArtifactSource(storage.home))
    names = sorted({column.name for column in plan.columns})
    cell.enter(Phase.READING)
    started = time.perf_counter()
    try:
        raw = read_raw(storage, work.fragment, names, coded=names)
    except _UNREADABLE as error:  # once for all: no further request for each of them
        return _Computed({}, {one.column: failure_of(error) for one in components}, {}, 0)
    read = time.perf_counter()
    plans.warm(components, plan, raw, cell)
    result = plan.run(raw, cell.enter_step, checked=True)
    phases = PhaseSecs(read - started, time.perf_counter() - read)
    failures = {column: failure_of_component(failure) for column, failure in result.failures.items()}
    columns = {one.column: result.columns[one.column] for one in components if one.column not in failures}
    return _Computed(columns, failures, result.component_secs, raw.nbytes, result.operators, phases)


def failure_of_component(failure: ComponentFailure) -> Failure:
    """A component's failure in a plan, in the form of the queue."""
    kind: FailureKind = "memory" if failure.is_out_of_memory else "raised"
    return Failure(kind, failure.error, failure.operator, failure.expression)


def failure_of(error: Exception) -> Failure:
    """The failure of a component that was not run, because of its data or its definition."""
    text = one_line(error)
    if isinstance(error, MemoryError):
        return Failure("memory", f"{type(error).__name__}: {text}")
    if isinstance(error, _UNREADABLE):
        return Failure("unreadable", text)
    if isinstance(error, OtherRelease):
        return Failure("release", text)
    if isinstance(error, DataError | UnknownColumn):
        return Failure("data", text)
    return Failure("raised", text if isinstance(error, HeadraceError) else f"{type(error).__name__}: {text}")
