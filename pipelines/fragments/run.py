"""One fragment computed in this process: one read of its raw columns, one plan, one memo file.

A component that raises costs no other component anything. One that takes all memory or never ends takes this process with
it, which is why workers call this in a child (:mod:`pipelines.isolation`); the board says where it is.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pipelines.fragments.board import Phase, StepBoard
from pipelines.fragments.work import ComponentOutcome, FragmentResult, FragmentWork, PhaseSecs, WantedComponent, added
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

#: Enough rows to meet nulls and the commonest lengths.
_WARMING_ROWS = 256
_PLANS_KEPT = 16
#: What a machine says that cannot read a file; another machine may, or this one later.
_UNREADABLE = (StorageError, MissingFile)


class PlanCache:
    """Compiled plans by the set of components they compute; the least recently used ones are let go. Thread-safe."""

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

    def warm(self, components: Sequence[WantedComponent], plan: Plan, raw: pa.Table, board: StepBoard) -> None:
        """Run a plan on a few rows the first time it is used in this process, and drop what comes out.

        Kernels that this machine never compiled are compiled then, so that no component's measured seconds hold it.
        """
        key = tuple(sorted(component.column for component in components))
        with self._lock:
            if key not in self._warm:
                plan.run(raw.slice(0, _WARMING_ROWS), board.step, checked=True)
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
    storage: Storage, work: FragmentWork, plans: PlanCache, board: StepBoard | None = None
) -> FragmentResult:
    """Compute every component of ``work`` and write those that succeed to one file, whole or not at all.

    The memo file is a function of the components and of the raw columns' bytes alone. A component fails by itself:
    when its operators raise, when a raw column it reads cannot be read or has changed since it was registered, or when its
    operators are not of this release. Raises :class:`~transforms.errors.StorageError` when the memo file cannot be written.
    """
    board = board or StepBoard()
    computed = _compute(storage, work, plans, board)
    board.at(Phase.WRITING)
    # A file with fewer columns has another name: a late worker whose component failed must not overwrite a whole one.
    keys = [memo_key for memo_key, column, _ in work.components if column in computed.columns]
    file = memo_path_of(work.output, keys)
    begun = time.perf_counter()
    written = write_memo_file(storage, file, computed.columns) if keys else None
    phases = replace(computed.phases, writing=time.perf_counter() - begun)
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
    return ComponentOutcome(memo_key, column, None, stored.checksum, stored.rows, stored.size_bytes,
                            computed.secs[column], written.path)  # fmt: skip


def _compute(storage: Storage, work: FragmentWork, plans: PlanCache, board: StepBoard) -> _Computed:
    """All components together; if the whole cannot be run, one by one, so that only those at fault are lost."""
    board.alone(None)
    try:
        return _run(storage, work, plans, board)
    except Exception as error:  # of any kind: what it was is the component's result, or comes again one by one
        if len(work.components) == 1:
            return _Computed({}, {work.components[0].column: failure_of(error)}, {}, 0)
    parts = [_compute_alone(storage, work, which, plans, board) for which in range(len(work.components))]
    return _Computed(
        columns={column: array for part in parts for column, array in part.columns.items()},
        failures={column: failure for part in parts for column, failure in part.failures.items()},
        secs={column: secs for part in parts for column, secs in part.secs.items()},
        raw_bytes=sum(part.raw_bytes for part in parts),
        operators=sum_operator_work(measured for part in parts for measured in part.operators),
        phases=added(part.phases for part in parts),
    )


def _compute_alone(storage: Storage, work: FragmentWork, which: int, plans: PlanCache, board: StepBoard) -> _Computed:
    board.alone(which)
    wanted = work.components[which]
    try:
        return _run(storage, work.only({wanted.column}), plans, board)
    except Exception as error:  # of any kind: it is this component's result
        return _Computed({}, {wanted.column: failure_of(error)}, {}, 0)


def _run(storage: Storage, work: FragmentWork, plans: PlanCache, board: StepBoard) -> _Computed:
    components = work.components
    board.at(Phase.COMPILING)
    plan = plans.plan(components, ArtifactSource(storage.home))
    names = sorted({column.name for column in plan.columns})
    board.at(Phase.READING)
    begun = time.perf_counter()
    try:
        raw = read_raw(storage, work.fragment, names, coded=names)
    except _UNREADABLE as error:  # once for all: a store that does not answer is not asked again for each of them
        return _Computed({}, {one.column: failure_of(error) for one in components}, {}, 0)
    read = time.perf_counter()
    plans.warm(components, plan, raw, board)
    result = plan.run(raw, board.step, checked=True)
    phases = PhaseSecs(read - begun, time.perf_counter() - read)
    failures = {column: failure_of_component(failure) for column, failure in result.failures.items()}
    columns = {one.column: result.columns[one.column] for one in components if one.column not in failures}
    return _Computed(columns, failures, result.component_secs, raw.nbytes, result.operators, phases)


def failure_of_component(failure: ComponentFailure) -> Failure:
    """What a plan says of a component, as the queue keeps it."""
    kind: FailureKind = "memory" if failure.is_out_of_memory else "raised"
    return Failure(kind, failure.error, failure.operator, failure.expression)


def failure_of(error: Exception) -> Failure:
    """What kept a component from being run at all: its data, or what it is."""
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
