"""An existing tf.Transform ``preprocessing_fn`` as model inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from transforms.errors import InputError, TypeMismatch
from transforms.expression import Expr


def from_preprocessing_fn(
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    columns: Mapping[str, Expr],
    *,
    sparse: Collection[str] = (),
    ragged: Collection[str] = (),
) -> dict[str, Expr]:
    """One expression for each output of a ``preprocessing_fn``, by its key; feed them to ``Model.input``.

    ``columns`` gives an expression for every key that the function reads. A dense column enters as a tensor of shape
    [rows], a vector as [rows, n], a list as a SparseTensor, or as a RaggedTensor if its key is in ``ragged``; a dense
    column whose key is in ``sparse`` enters as a SparseTensor in which a null has no entry, as with a VarLenFeature.
    Where a dense tensor would have to hold a null, every output that reads it is null (empty, or zeros) for that event.

    The function is traced here, once; files that fill its tables are read then. Raises
    :class:`~transforms.errors.InputError` for one that cannot be traced, analyses the data, holds an operation that is not
    in :mod:`transforms.twins.allowed_operations`, or has an output of a shape that cannot be stored.
    """
    _check(columns, sparse, ragged)
    from transforms.twins.bridge import bridged

    return bridged(function, columns, sparse, ragged)


def from_transform_output(
    path: str, columns: Mapping[str, Expr], *, sparse: Collection[str] = (), ragged: Collection[str] = ()
) -> dict[str, Expr]:
    """As :func:`from_preprocessing_fn`, of the ``transform_fn`` folder that tf.Transform wrote after its analysis.

    What the analysis found, and the vocabularies, become part of each graph: by content, not by where they stand.
    """
    _check(columns, sparse, ragged)
    from transforms.twins.bridge import from_saved

    return from_saved(path, columns, sparse, ragged)


def _check(columns: Mapping[str, Expr], sparse: Collection[str], ragged: Collection[str]) -> None:
    for name, expression in columns.items():
        if not isinstance(expression, Expr):
            raise TypeMismatch("a column of a preprocessing_fn is an expression", where=f"column {name}",
                               value=expression, next_step='such as hr.text("query")')  # fmt: skip
    for name in (*sparse, *ragged):
        if name not in columns:
            raise InputError("no column has this name", value=name, allowed=", ".join(sorted(columns)))
