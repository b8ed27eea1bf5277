"""Run the missing analyses of a model: read only partitions without contributions, and write the artifacts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from pipelines.analysis.accumulators import merge_contributions
from pipelines.analysis.contributions import known_contributions, read_contribution
from pipelines.analysis.passes import run_passes
from pipelines.analysis.values import Part, PartitionWork
from pipelines.runners.progress import OnProgress
from pipelines.runners.runner import RunnerOptions
from transforms.analysis.full_pass import PreprocessingAnalysis
from transforms.errors import DataError
from transforms.expressions.model import Model
from transforms.graphs.graph import Node, component_document
from warehouse.files.artifacts import write_artifact
from warehouse.joins.refresh import compute_joins
from warehouse.matching.checked_model import check_model
from warehouse.matching.join_checks import check_joins
from warehouse.models.analyses import PartitionData, PlacedAnalysis, record_written, resolve_components
from warehouse.models.pinned_analyses import prepare_analyses
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import get_table
from warehouse.tables.table import content_of
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Analyzed:
    """One finished analysis.

    ``partitions_read``, ``fragments_read`` and ``rows_read`` count what was read; the other partitions had contributions.
    ``size``: values of the artifact. ``secs``: wall-clock time of the job with this analysis.
    """

    operator: str
    expression: str
    over: str
    partitions: int
    partitions_read: int
    fragments_read: int
    rows: int
    rows_read: int
    size: int
    artifact: str
    secs: float


def analyze_model(
    warehouse: Warehouse,
    model: Model,
    *,
    table: str | None = None,
    options: RunnerOptions | None = None,
    progress: OnProgress | None = None,
) -> tuple[Analyzed, ...]:
    """Run every missing analysis of ``model``.

    An analysis over the result of another one runs after it. Raises the errors of a submission for a wrong model,
    :class:`DataError` for a range without values, and the errors of reading raw data.
    """
    name = table or model.table or ""
    with warehouse.catalog.read() as connection:
        known = get_table(connection, name)
        check_joins(connection, model.name, known, model.joins)
        check_model(model, known)
    compute_joins(warehouse, name, model.joins)
    components: Mapping[str, Node] = {item.name: item.component for item in model.inputs.values()}
    made: list[Analyzed] = []
    while True:
        resolution = resolve_components(warehouse, components, name)
        if not resolution.missing:
            action = partial(prepare_analyses, model=model.name, used=resolution.used)
            warehouse.catalog.run(action, idempotent=True)
            return tuple(made)
        made += _make_all(warehouse, resolution.missing, options, progress)
        components = resolution.components


def _make_all(
    warehouse: Warehouse, missing: Sequence[PlacedAnalysis], options: RunnerOptions | None, progress: OnProgress | None
) -> list[Analyzed]:
    """Run the analyses of operators, then those of whole preprocessing functions, one by one."""
    whole = [placed for placed in missing if isinstance(placed.analysis, PreprocessingAnalysis)]
    own = [placed for placed in missing if not isinstance(placed.analysis, PreprocessingAnalysis)]
    made = _make(warehouse, own, options, progress) if own else []
    return made + [_make_whole(warehouse, placed, options, progress) for placed in whole]


def _make_whole(
    warehouse: Warehouse, placed: PlacedAnalysis, options: RunnerOptions | None, progress: OnProgress | None
) -> Analyzed:
    """Run the analysis of a preprocessing_fn, by tf.Transform over all partitions of its range."""
    begun = time.monotonic()
    from pipelines.analysis.preprocessing import preprocessing_graphs  # loads TensorFlow, which operators do not need

    graphs = preprocessing_graphs(placed, warehouse.storage, options, progress)
    while True:
        artifact = write_artifact(warehouse.storage, graphs)
        secs = time.monotonic() - begun
        action = partial(record_written, storage=warehouse.storage, placed=placed, artifact=artifact, secs=secs,
                         now=warehouse.clock())  # fmt: skip
        if warehouse.catalog.run(action, idempotent=True):
            read = {partition.contribution for partition in placed.partitions}
            return _report(placed, read, artifact, len(graphs), secs)


def _make(
    warehouse: Warehouse, missing: Sequence[PlacedAnalysis], options: RunnerOptions | None, progress: OnProgress | None
) -> list[Analyzed]:
    storage, begun = warehouse.storage, time.monotonic()
    works = missing_work(storage, missing)
    run_passes(works, storage.home, options, progress)
    read = {part.contribution for work in works for part in work.parts}
    made = []
    for placed in missing:
        while True:
            artifact, size = _keep(storage, placed)
            secs = time.monotonic() - begun
            action = partial(
                record_written, storage=storage, placed=placed, artifact=artifact, secs=secs, now=warehouse.clock()
            )
            if warehouse.catalog.run(action, idempotent=True):
                break  # otherwise a garbage collection deleted the artifact in between: write it again
        made.append(_report(placed, read, artifact, size, secs))
    return made


def missing_work(storage: Storage, missing: Sequence[PlacedAnalysis]) -> list[PartitionWork]:
    """The partitions to read, in time order, each once for all its analyses."""
    parts: dict[tuple[str, tuple[str, ...]], dict[str, Part]] = {}
    sources: dict[tuple[str, tuple[str, ...]], PartitionData] = {}
    known = known_contributions(storage, (one.contribution for placed in missing for one in placed.partitions))
    for placed in missing:
        roots = (placed.analysis.expression, placed.analysis.label, placed.analysis.weight)
        expression, label, weight = (None if root is None else component_document(root) for root in roots)
        assert expression is not None, "an analysis has values"
        for partition in placed.partitions:
            content = tuple(content_of(fragment, fragment.digests) for fragment in partition.fragments)
            source = (partition.partition, content)
            if partition.contribution in known:
                continue
            sources.setdefault(source, partition)
            part = Part(partition.contribution, placed.analysis.operator, expression, label, weight)
            parts.setdefault(source, {})[partition.contribution] = part
    return [
        PartitionWork(source.partition, source.fragments, tuple(parts[key].values())) for key, source in sources.items()
    ]


def _keep(storage: Storage, placed: PlacedAnalysis) -> tuple[str, int]:
    """Write the artifact of an analysis whose contributions are all stored."""
    try:
        values = merge_contributions(
            placed.analysis, (read_contribution(storage, one.contribution) for one in placed.partitions)
        )
    except DataError as error:
        error.where = error.where or placed.describe()
        raise
    return write_artifact(storage, values), len(values)


def _report(placed: PlacedAnalysis, contributions: Set[str], artifact: str, size: int, secs: float) -> Analyzed:
    read = [partition for partition in placed.partitions if partition.contribution in contributions]
    return Analyzed(
        operator=placed.analysis.operator,
        expression=placed.analysis.text,
        over=str(placed.analysis.over),
        partitions=len(placed.partitions),
        partitions_read=len(read),
        fragments_read=sum(len(partition.fragments) for partition in read),
        rows=placed.rows,
        rows_read=sum(partition.rows for partition in read),
        size=size,
        artifact=artifact,
        secs=secs,
    )
