"""Analyses of whole preprocessing functions by tf.Transform, and the graphs of their outputs.

    partitions ── ReadColumns ── record batches ── AnalyzeDataset ── transform_fn ── one canonical graph an output

The batches follow the order of the fragments and have the same bounds on every run, so that one worker computes the same
bits again.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from pipelines.analysis.preprocessing_columns import PreprocessingWork, column_batches, representation
from pipelines.runners.elements import CreateStrings
from pipelines.runners.error_documents import error_document, error_from_document, read_object
from pipelines.runners.progress import OnProgress, report_progress
from pipelines.runners.remote import require_runnable
from pipelines.runners.runner import RunnerOptions, run_pipeline
from transforms.analysis.full_pass import PreprocessingAnalysis
from transforms.analysis.preprocessing_functions import AnalyzedFunction
from transforms.errors import DataError, HeadraceError, InputError
from transforms.expressions.expression import Expr
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Operation, RawColumn, component_document
from transforms.twins.bridge import bridged, saved_function
from transforms.twins.entering import Ways
from transforms.twins.refusals import refused_when
from transforms.types import DType
from warehouse.models.analyses import PlacedAnalysis
from warehouse.storage.storage import Storage

#: The most bytes of all graphs of one function; a vocabulary of a million terms takes about 25 MB.
_MOST_BYTES = 1 << 28


def preprocessing_graphs(
    placed: PlacedAnalysis, storage: Storage, options: RunnerOptions | None = None, progress: OnProgress | None = None
) -> pa.Array:
    """The documents of a function's outputs for its artifact. ``progress`` counts partitions.

    Raises the :class:`HeadraceError` of a worker, the errors of the runner, and :class:`DataError` if tf.Transform
    fails or the graphs are too large.
    """
    analysis = placed.analysis
    assert isinstance(analysis, PreprocessingAnalysis)
    if not storage.is_local:
        raise InputError("the home must be a local folder for full passes", where=storage.home, value=placed.describe(),
                         next_step="analyze in a local home, or use models without full-pass operators")  # fmt: skip
    home, options = storage.home, options or RunnerOptions()
    require_runnable(options, home, tempfile.gettempdir())
    temporary = Path(tempfile.mkdtemp(prefix="headrace-preprocess-"))
    try:
        done = temporary / "done"
        done.mkdir()
        works = _works(placed, analysis)
        with report_progress("analyzing", lambda: len(list(done.glob("*.json"))), len(works), progress):
            _run(works, home, analysis.function, temporary, options)
        return _bound(analysis, str(temporary / "out" / "transform_fn"), placed)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _works(placed: PlacedAnalysis, analysis: PreprocessingAnalysis) -> list[PreprocessingWork]:
    function = analysis.function
    columns = {key: component_document(analysis.operands[key]) for key in function.analyzed}
    return [
        PreprocessingWork(number, partition.fragments, columns, function.ways, function.types)
        for number, partition in enumerate(placed.partitions)
    ]


def _run(
    works: Sequence[PreprocessingWork], home: str, function: AnalyzedFunction, temporary: Path, options: RunnerOptions
) -> None:
    try:
        with _quiet():
            run_pipeline(lambda pipeline: _build(pipeline, works, home, function, temporary), options)
    except Exception as error:
        for file in sorted((temporary / "done").glob("*.json")):
            document = read_object(file.read_bytes(), str(file))
            if "error" in document:
                raise error_from_document(document["error"]) from None
        if isinstance(error, HeadraceError):
            raise
        raise DataError("tf.Transform's analysis failed", where=function.analyzers,
                        value=f"{type(error).__name__}: {error}"[:600],
                        next_step="run tf.Transform's own AnalyzeDataset over these rows") from error  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Mute Beam's log: the error of a worker is raised in this process, and Beam would also log it several times."""
    loggers = [logging.getLogger(name) for name in ("apache_beam", "tensorflow", "absl")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _build(
    pipeline: beam.Pipeline,
    works: Sequence[PreprocessingWork],
    home: str,
    function: AnalyzedFunction,
    temporary: Path,
) -> None:
    fields, representations = representation(function.ways, function.types)
    config = TensorAdapterConfig(pa.schema(fields), representations)

    def analyzed(inputs: dict[str, Any]) -> Mapping[str, Any]:
        found = function.function(_with_booleans(inputs, function))
        return {name: found[name] for name in function.outputs}

    data = (
        pipeline
        | "Partitions" >> CreateStrings([work.to_json() for work in works])
        | "ReadColumns" >> beam.ParDo(ReadColumns(home, str(temporary / "done")))
    )
    with tft_beam.Context(temp_dir=str(temporary / "temp")):
        transform_fn = (data, config) | "Analyze" >> tft_beam.AnalyzeDataset(analyzed)
        _ = transform_fn | "Write" >> tft_beam.WriteTransformFn(str(temporary / "out"))


def _with_booleans(inputs: Mapping[str, Any], function: AnalyzedFunction) -> dict[str, Any]:
    """The inputs with booleans as integers, since tf.Transform accepts no booleans."""
    return {
        key: tf.cast(tensor, tf.bool) if function.types[key].dtype is DType.BOOL else tensor
        for key, tensor in inputs.items()
    }


def _with_integers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tf.cast(tensor, tf.int64) if tensor.dtype == tf.bool else tensor for key, tensor in inputs.items()}


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(pa.RecordBatch)
class ReadColumns(beam.DoFn):
    """Read the record batches of one partition, in order, with a document for its end or its error."""

    def __init__(self, home: str, done: str) -> None:
        self._home = home
        self._done = done

    def process(self, element: str) -> Iterator[pa.RecordBatch]:
        """One partition of work in, its batches out."""
        work = PreprocessingWork.from_json(element)
        try:
            yield from column_batches(self._home, work)
        except HeadraceError as error:
            self._say(work, {"error": error_document(error)})
            raise
        self._say(work, {"rows": work.rows})

    def _say(self, work: PreprocessingWork, document: dict[str, object]) -> None:
        Path(self._done, f"{work.number:08d}.json").write_text(json.dumps(document, sort_keys=True), encoding="utf-8")


def _bound(analysis: PreprocessingAnalysis, path: str, placed: PlacedAnalysis) -> pa.Array:
    """One document per output: its key, the keys of the columns that its graph reads, in order, and the graph."""
    function = analysis.function
    by_way: dict[str, set[str]] = {"sparse": set(), "ragged": set(), "column": set()}
    for key, way in function.ways.items():
        by_way.get(way, set()).add(key)
    ways = Ways(by_way["sparse"], by_way["ragged"], by_way["column"])
    # No analyzed output reads the other columns, but the saved function has them as inputs.
    columns = {key: Expr(analysis.operands.get(key, RawColumn(each, key))) for key, each in function.types.items()}
    with refused_when("bound to the results of the analysis"):
        saved, _ = saved_function(path)
        made = bridged(lambda inputs: saved(_with_integers(inputs)), columns, ways, narrow=True)
    documents = [_document(name, made[name].node, analysis) for name in function.outputs]
    if (size := sum(map(len, documents))) > _MOST_BYTES:
        raise DataError("the graphs of an analyzed function must fit the limit", where=placed.describe(),
                        value=f"{size} bytes", allowed=f"{_MOST_BYTES} bytes",
                        next_step="keep fewer terms, as with top_k")  # fmt: skip
    return pa.array(documents, pa.string())


def _document(name: str, node: Any, analysis: PreprocessingAnalysis) -> str:
    assert isinstance(node, Operation), "an output is a graph over columns"
    keys = {canonicalize(operand).identity: key for key, operand in sorted(analysis.operands.items())}
    columns = [keys[canonicalize(operand).identity] for operand in node.operands]
    graph = dict(node.params)["graph"]
    return json.dumps({"output": name, "columns": columns, "graph": graph}, sort_keys=True, separators=(",", ":"))
