"""A tf.Transform ``preprocessing_fn`` as model inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from transforms.errors import InputError, TypeMismatch
from transforms.expressions.expression import Expr
from transforms.time_range import TimeRange


def from_preprocessing_fn(
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    columns: Mapping[str, Any] | Any,
    *,
    over: TimeRange | None = None,
    sparse: Collection[str] = (),
    ragged: Collection[str] = (),
    shape1: Collection[str] = (),
) -> dict[str, Expr]:
    """One expression for each output of a ``preprocessing_fn``, by its key; feed them to ``Model.input``.

    ``columns`` gives an expression for every key that the function reads, or its TensorFlow feature
    (``tf.io.FixedLenFeature([1], tf.string)``), which stands for the table's column of that name; it may be a whole feature
    spec or a schema of TensorFlow Metadata. A dense column enters as a tensor of shape [rows], a vector as [rows, n], a list
    as a SparseTensor, or as a RaggedTensor if its key is in ``ragged``; a dense column whose key is in ``sparse`` enters as
    a SparseTensor in which a null has no entry, as with a VarLenFeature, and one whose key is in ``shape1`` as a tensor of
    shape [rows, 1]. An output of shape [rows, 1] that reads such a column is a dense column again.
    Where a dense tensor would have to hold a null, every output that reads it is null (empty, or zeros) for that event.

    ``over`` is the range that the function's analyzers run over, such as ``between("2026-01-01", "2026-01-08")``. An output
    that needs them is a full-pass expression: ``headrace analyze`` runs tf.Transform's own analysis. Other outputs need none.

    The function is traced here, once; files that fill its tables are read then. Raises
    :class:`~transforms.errors.InputError` for one that cannot be traced, has analyzers and no range, holds an operation that
    is not in :mod:`transforms.twins.allowed_operations`, or has an output of a shape that cannot be stored.

    >>> def preprocessing_fn(inputs):
    ...     import tensorflow as tf
    ...
    ...     return {"shout": tf.strings.upper(inputs["query"])}
    >>> print(from_preprocessing_fn(preprocessing_fn, {"query": text("query")})["shout"].type)
    Dense[string]
    """
    if over is not None and not isinstance(over, TimeRange):
        raise TypeMismatch("over must be a range from hr.between", where="over", value=over,
                           next_step='over=hr.between("2026-01-01", "2026-01-08")')  # fmt: skip
    expressions, ways = _given(columns, sparse, ragged, shape1)
    from transforms.twins.bridge import bridged
    from transforms.twins.entering import Ways

    return bridged(function, expressions, Ways(**ways), over)


def from_transform_output(
    path: str,
    columns: Mapping[str, Any] | Any,
    *,
    sparse: Collection[str] = (),
    ragged: Collection[str] = (),
    shape1: Collection[str] = (),
) -> dict[str, Expr]:
    """As :func:`from_preprocessing_fn`, of the ``transform_fn`` folder that tf.Transform wrote after its analysis.

    The results of the analysis and the vocabularies become part of each graph by content, not by path.

    >>> features = from_transform_output(transform_fn, {"query": text("query")})
    >>> sorted(features)
    ['shout']
    """
    expressions, ways = _given(columns, sparse, ragged, shape1)
    from transforms.twins.bridge import from_saved
    from transforms.twins.entering import Ways

    return from_saved(path, expressions, Ways(**ways))


def _given(
    columns: Any, sparse: Collection[str], ragged: Collection[str], shape1: Collection[str]
) -> tuple[dict[str, Expr], dict[str, set[str]]]:
    """An expression for every key, and the keys by the way in which they enter."""
    if not isinstance(columns, Mapping):
        from transforms.twins.feature_specs import features_of_schema

        columns = features_of_schema(columns)
    ways = {"sparse": set(sparse), "ragged": set(ragged), "shape1": set(shape1)}
    expressions = {name: _column(name, given, ways) for name, given in columns.items()}
    for way, names in ways.items():
        for name in names:
            if name not in expressions:
                raise InputError("no column has this name", where=way, value=name, allowed=", ".join(sorted(columns)))
    return expressions, ways


def _column(name: str, given: Any, ways: Mapping[str, set[str]]) -> Expr:
    if isinstance(given, Expr):
        return given
    if type(given).__module__.partition(".")[0] != "tensorflow":
        raise TypeMismatch("a column of a preprocessing_fn must be an expression or a feature of TensorFlow",
                           where=f"column {name}", value=given,
                           next_step='such as hr.text("query") or tf.io.FixedLenFeature([1], tf.string)')  # fmt: skip
    from transforms.twins.feature_specs import column_of_feature

    expression, way = column_of_feature(name, given)
    if way:
        ways[way].add(name)
    return expression
