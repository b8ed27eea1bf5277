"""The memoize job: many components over many fragments, each fragment read once.

    fragments of work ── Spread ── MemoizeFragments ──> results

An element is a fragment with every component that is wanted of it. One read of the raw columns, one compiled plan, one
memo file with a column a component; then a small result document, which is how the caller learns of it, whatever
machine it ran on. A component that fails costs no other component anything.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics

from pipelines.beam_runner import RunnerOptions, run_pipeline
from pipelines.bundle_threads import BundleThreads
from pipelines.errors import MemoizeFailed
from pipelines.outcomes import error_document, error_from_document
from pipelines.spread import Spread
from transforms.errors import HeadraceError, StorageError
from transforms.graph import component_from_document
from transforms.measured import OperatorWork, summed, work_from_document
from transforms.memory import keep_freed_memory
from transforms.plan import Artifacts, Plan, compile_plan, no_artifacts
from warehouse.artifacts import ArtifactSource
from warehouse.memo_file import MemoFile, NewFile, memo_path_of, write_memo_file
from warehouse.reader import read_raw
from warehouse.storage import Storage
from warehouse.table import Fragment

NAMESPACE = "headrace.memoize"
#: The steps of the pipeline, by label. Runners key their state and their metrics by these.
STEPS = ("Fragments", "Spread", "MemoizeFragments")

#: Enough rows to meet nulls and the commonest lengths.
_WARMING_ROWS = 256
_PLANS_KEPT = 16
_JOBS = "jobs"
_EVENT_CHARACTERS = 500


class WantedComponent(NamedTuple):
    """One memo to compute: its key, its column in the memo file (the component's fingerprint) and the component."""

    memo_key: str
    column: str
    component: Mapping[str, Any]


@dataclass(frozen=True)
class FragmentWork:
    """A fragment, the components wanted of it, and the memo file (relative to the home) that they go to."""

    fragment: Fragment
    components: tuple[WantedComponent, ...]
    output: str

    def to_json(self) -> str:
        """The work as Beam carries it."""
        components = [list(component) for component in self.components]
        document = {"fragment": self.fragment.to_document(), "components": components, "output": self.output}
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> FragmentWork:
        """The inverse of :meth:`to_json`."""
        document = json.loads(text)
        components = tuple(WantedComponent(*component) for component in document["components"])
        return cls(Fragment.from_document(document["fragment"]), components, document["output"])


@dataclass(frozen=True, slots=True)
class ComponentOutcome:
    """One component's memo, or why there is none: ``error`` is empty exactly when the memo was written.

    ``secs``: what the component would have taken by itself, from raw columns in memory to its Arrow column.
    """

    memo_key: str
    column: str
    error: str = ""
    checksum: str = ""
    rows: int = 0
    size_bytes: int = 0
    secs: float = 0.0


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """What became of one :class:`FragmentWork`, known by its ``output``.

    ``file`` holds the memos that were written; its path is ``output`` when none failed, and empty when all did.
    ``raw_bytes_read``: the raw columns as they lay in memory. ``operators``: what each operator took.
    """

    fragment_id: str
    output: str
    file: NewFile
    rows: int
    raw_bytes_read: int
    outcomes: tuple[ComponentOutcome, ...]
    operators: tuple[OperatorWork, ...] = ()

    def to_document(self) -> dict[str, object]:
        """The result as a JSON object."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FragmentResult:
        """The inverse of :meth:`to_document`."""
        outcomes = tuple(ComponentOutcome(**outcome) for outcome in document["outcomes"])
        operators = work_from_document(document["operators"])
        parts = {"file": NewFile(**document["file"]), "outcomes": outcomes, "operators": operators}
        return cls(**{**document, **parts})


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

    def warm(self, components: Sequence[WantedComponent], plan: Plan, raw: pa.Table) -> None:
        """Run a plan on a few rows the first time it is used in this process, and drop what comes out.

        Kernels that this machine never compiled are compiled then, so that no component's measured seconds hold it.
        """
        key = tuple(sorted(component.column for component in components))
        with self._lock:
            if key not in self._warm:
                plan.run(raw.slice(0, _WARMING_ROWS))
                self._warm.add(key)


@dataclass(frozen=True, slots=True)
class _Computed:
    columns: Mapping[str, pa.Array]
    errors: Mapping[str, str]
    secs: Mapping[str, float]
    raw_bytes: int
    operators: tuple[OperatorWork, ...] = ()


def memoize_fragment(storage: Storage, work: FragmentWork, plans: PlanCache) -> FragmentResult:
    """Compute every component of ``work`` and write those that succeed to one file, whole or not at all.

    The memo file is a function of the components and of the raw columns' bytes alone. A component fails by itself:
    when its operators raise, when a raw column it reads has changed since it was registered, or when its operators
    are not of this release. Raises :class:`~transforms.errors.StorageError` when the memo file cannot be written.
    """
    computed = _compute(storage, work, plans)
    # A file with fewer columns has another name: a late worker whose component failed must not overwrite a whole one.
    keys = [memo_key for memo_key, column, _ in work.components if column in computed.columns]
    file = memo_path_of(work.output, keys)
    written = write_memo_file(storage, file, computed.columns) if keys else MemoFile("", 0, "", {})
    outcomes = []
    for memo_key, column, _ in work.components:
        if column in computed.errors:
            outcomes.append(ComponentOutcome(memo_key, column, computed.errors[column]))
            continue
        stored = written.columns[column]
        outcomes.append(ComponentOutcome(memo_key, column, "", stored.checksum, stored.rows, stored.size_bytes,
                                         computed.secs[column]))  # fmt: skip
    fragment = work.fragment
    entered = NewFile(written.path, written.checksum, fragment.rows, written.size_bytes)
    return FragmentResult(
        fragment.fragment_id,
        work.output,
        entered,
        fragment.rows,
        computed.raw_bytes,
        tuple(outcomes),
        computed.operators,
    )


def _compute(storage: Storage, work: FragmentWork, plans: PlanCache) -> _Computed:
    """All components together; if the whole cannot be run, one by one, so that only those at fault are lost."""
    try:
        return _run(storage, work.fragment, work.components, plans)
    except StorageError:
        raise
    except Exception as error:  # of any kind: what it was is the component's result, or comes again one by one
        if len(work.components) == 1:
            return _Computed({}, {work.components[0].column: _error_text(error)}, {}, 0)
    parts = [
        _compute(storage, FragmentWork(work.fragment, (component,), work.output), plans)
        for component in work.components
    ]
    return _Computed(
        columns={column: array for part in parts for column, array in part.columns.items()},
        errors={column: text for part in parts for column, text in part.errors.items()},
        secs={column: secs for part in parts for column, secs in part.secs.items()},
        raw_bytes=sum(part.raw_bytes for part in parts),
        operators=summed(work for part in parts for work in part.operators),
    )


def _run(
    storage: Storage, fragment: Fragment, components: Sequence[WantedComponent], plans: PlanCache
) -> _Computed:  # fmt: skip
    artifacts = ArtifactSource(storage.home)
    plan = plans.plan(components, artifacts)
    names = sorted({column.name for column in plan.columns})
    raw = read_raw(storage, fragment, names, coded=names)
    plans.warm(components, plan, raw)
    result = plan.run(raw)
    failed = {wanted.column: wanted for wanted in components if wanted.column in result.failures}
    errors = {
        column: f"operator {failure.operator}: {failure.error} in {failure.expression}"
        + _sample_event(failed[column], raw, artifacts)
        for column, failure in result.failures.items()
    }
    in_order = {wanted.column: result.columns[wanted.column] for wanted in components if wanted.column not in errors}
    return _Computed(in_order, errors, result.component_secs, raw.nbytes, result.operators)


def _sample_event(wanted: WantedComponent, raw: pa.Table, artifacts: Artifacts) -> str:
    """One event on which the component fails by itself, found by halving; empty if it takes several to fail."""
    plan = compile_plan({wanted.column: component_from_document(dict(wanted.component))}, artifacts)
    low, high = 0, raw.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        if plan.run(raw.slice(low, middle - low)).failures:
            high = middle
        elif plan.run(raw.slice(middle, high - middle)).failures:
            low = middle
        else:
            return ""
    event = raw.select(sorted({column.name for column in plan.columns})).slice(low, 1).to_pylist()
    return (
        f"; event {low}: {json.dumps(event[0], default=str, ensure_ascii=False)[:_EVENT_CHARACTERS]}" if event else ""
    )


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"


#: Plans of this process, shared by every thread that memoizes in it.
_PROCESS_PLANS = PlanCache()


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class MemoizeFragments(BundleThreads):
    """:func:`memoize_fragment`, its result written to ``jobs/<job>-<index>.json`` of the home, and counted."""

    def __init__(self, home: str, job: str, threads: int = 1) -> None:
        super().__init__(threads)
        self._home = home
        self._job = job
        names = ("fragments", "rows", "raw_bytes_read", "memos", "components_failed")
        self._counters = {name: Metrics.counter(NAMESPACE, name) for name in names}

    def setup(self) -> None:
        """Keep memory from fragment to fragment."""
        keep_freed_memory()

    def work(self, element: str) -> tuple[str, FragmentResult | None]:
        """One fragment of work in; the path of its result document, and the result if there is one."""
        index, _, text = element.partition(" ")
        storage = Storage(self._home)
        path = f"{_JOBS}/{self._job}-{index}.json"
        result: FragmentResult | None = None
        try:
            result = memoize_fragment(storage, FragmentWork.from_json(text), _PROCESS_PLANS)
            document: Mapping[str, object] = {"result": result.to_document()}
        except StorageError as error:
            document = {"error": error_document(error)}
        storage.write_atomic(path, json.dumps(document, sort_keys=True).encode("utf-8"))
        return path, result

    def emit(self, result: tuple[str, FragmentResult | None]) -> list[str]:
        """The path of the result document."""
        path, written = result
        if written is not None:
            self._count(written)
        return [path]

    def _count(self, result: FragmentResult) -> None:
        failed = sum(1 for outcome in result.outcomes if outcome.error)
        counted = {"fragments": 1, "rows": result.rows, "raw_bytes_read": result.raw_bytes_read,
                   "memos": len(result.outcomes) - failed, "components_failed": failed}  # fmt: skip
        for name, count in counted.items():
            self._counters[name].inc(count)


def build(pipeline: beam.Pipeline, works: Sequence[FragmentWork], home: str, job: str, threads: int = 1) -> None:
    """The pipeline's shape. Every element is text (StrUtf8Coder: deterministic, no pickle).

    With several ``threads`` one step works on all fragments; else they are spread over the runner's workers.
    """
    elements = [f"{index:06d} {work.to_json()}" for index, work in enumerate(works)]
    fragments = pipeline | "Fragments" >> beam.Create(elements, reshuffle=False).with_output_types(str)
    if threads == 1:
        fragments = fragments | "Spread" >> Spread()
    _ = fragments | "MemoizeFragments" >> beam.ParDo(MemoizeFragments(home, job, threads))


class JobResults:
    """The results of a running job as they arrive on storage, each handed out once."""

    def __init__(self, storage: Storage, job: str, total: int) -> None:
        self._storage, self._job = storage, job
        self._seen: set[str] = set()
        self._errors: list[Mapping[str, object]] = []
        self.total = total

    def new(self) -> list[FragmentResult]:
        """Results that came since the last call. Raises the StorageError that a worker met, once no result is new."""
        results = []
        for file in self._storage.list(_JOBS):
            if file.path in self._seen or not file.path.rpartition("/")[2].startswith(f"{self._job}-"):
                continue
            document = json.loads(self._storage.read_bytes(file.path))
            self._seen.add(file.path)
            if "error" in document:
                self._errors.append(cast("Mapping[str, object]", document["error"]))
            else:
                results.append(FragmentResult.from_document(document["result"]))
        if self._errors and not results:
            raise error_from_document(self._errors[0])
        return results

    @property
    def missing(self) -> int:
        """How many results have not come yet."""
        return self.total - len(self._seen)

    def remove(self) -> None:
        """Delete the result documents: what they said is in the catalog."""
        for path in self._seen:
            self._storage.delete(path)


def remove_abandoned_results(storage: Storage, before: float) -> int:
    """Delete result documents last written before ``before`` (seconds since the epoch): their workers were killed."""
    old = [file for file in storage.list(_JOBS) if file.mtime_ns < before * 1e9]
    return sum(storage.delete(file.path) for file in old)


#: Called with the job's results; what it returns is entered while the job runs.
Attendance = Callable[[JobResults], AbstractContextManager[object]]


def run_memoize(
    works: Sequence[FragmentWork],
    home: str,
    job: str,
    options: RunnerOptions | None = None,
    attend: Attendance = nullcontext,
) -> tuple[FragmentResult, ...]:
    """Run the job named ``job`` (a name never used before) and return the results that ``attend`` did not take.

    Raises :class:`~transforms.errors.StorageError` when a memo could not be written, :class:`MemoizeFailed` when a
    fragment has no result, and what the runner raises.
    """
    if not works:
        return ()
    results = JobResults(Storage(home), job, len(works))
    with attend(results):
        chosen = options or RunnerOptions()
        run_pipeline(lambda pipeline: build(pipeline, works, home, job, chosen.threads), chosen, one_step=True)
    last = tuple(results.new())
    if results.missing:
        raise MemoizeFailed("a memoize job ended without all of its results", where=f"job {job}",
                            value=f"{results.missing} of {len(works)} fragments",
                            next_step="see the runner's log; the tasks stay queued")  # fmt: skip
    return last
