"""What a model does with each input, decided by the input's type alone. Pure.

=============================  =========================================================
type                           use
=============================  =========================================================
``Ragged[int64, buckets=n]``   a bag of ids, embedded in a table of n rows
``Dense[int64, buckets=n]``    one id, embedded; null is the empty bag
``Dense`` number or bool       one float32 of the dense vector; null is 0
anything else                  refused, with what to add to the expression
=============================  =========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import TrainConfig
from trainer.embedding.spec import SGD, Adagrad, FeatureSpec, Normal, Optimizer, TableSpec, tables_of
from trainer.errors import ConfigError, UntrainableInput
from transforms.errors import nearest
from transforms.types import ColumnType, Dense, DType, Ragged


@dataclass(frozen=True, slots=True)
class TypedInput:
    """A model input as the trainer sees it."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Inputs in the order of batches: ``embedded`` give bags of ids to ``features``, ``dense`` the columns of a matrix."""

    embedded: tuple[TypedInput, ...]
    dense: tuple[TypedInput, ...]
    features: tuple[FeatureSpec, ...]


def lay_out(inputs: Sequence[TypedInput], config: TrainConfig) -> InputLayout:
    """Decide the use of every input.

    Raises :class:`UntrainableInput` for a type that no part of the model takes, and :class:`ConfigError` for options about
    inputs that do not exist, or inputs that share a table but not its size.
    """
    for item in inputs:
        _check_type(item)
    embedded = tuple(item for item in inputs if _buckets(item.type) is not None)
    dense = tuple(item for item in inputs if _buckets(item.type) is None)
    if not inputs:
        raise ConfigError("a model needs at least one input", next_step="add inputs with model.input(name, expression)")
    _check_names(embedded, config)
    features = tuple(FeatureSpec(item.name, _table(item, config)) for item in embedded)
    tables_of(features)
    return InputLayout(embedded, dense, features)


def _buckets(column_type: ColumnType) -> int | None:
    return column_type.buckets if isinstance(column_type, (Dense, Ragged)) else None


def _check_type(item: TypedInput) -> None:
    if isinstance(item.type, (Dense, Ragged)) and item.type.buckets is not None:
        return
    if isinstance(item.type, Dense) and (item.type.dtype.is_numeric or item.type.dtype is DType.BOOL):
        return
    raise UntrainableInput(
        "no part of the model takes an input of this type",
        where=f"input {item.name}",
        value=str(item.type),
        allowed="ids with buckets (Ragged or Dense int64), or one number or bool an event",
        next_step=_remedy(item.type),
    )


def _remedy(column_type: ColumnType) -> str:
    if column_type.dtype is DType.TIMESTAMP:
        return "derive a number from the time, such as .hour_of_day(), or add .hash_buckets(n) to it"
    if isinstance(column_type, (Dense, Ragged)) and column_type.dtype in (DType.STRING, DType.INT64):
        return "add .hash_buckets(n) to the expression"
    if isinstance(column_type, Ragged):
        return "reduce it to one number an event, such as .count(), or turn its items into ids with .hash_buckets(n)"
    return "split it into inputs of a type that is taken"


def _check_names(embedded: Sequence[TypedInput], config: TrainConfig) -> None:
    names = [item.name for item in embedded]
    for option in ("dims", "combiners", "tables"):
        for name in getattr(config, option):
            if name not in names:
                raise ConfigError("an option is about an input that is not embedded", where=option, value=name,
                                  allowed=nearest(name, names))  # fmt: skip


def _table(item: TypedInput, config: TrainConfig) -> TableSpec:
    return TableSpec(
        name=config.tables.get(item.name, item.name),
        vocabulary_size=_buckets(item.type) or 0,
        dim=config.dims.get(item.name, config.dim),
        optimizer=_optimizer(config),
        combiner=config.combiners.get(item.name, config.combiner),
        initializer=Normal(0.0, config.embedding_initial_stddev),
    )


def _optimizer(config: TrainConfig) -> Optimizer:
    if config.embedding_optimizer == "sgd":
        return SGD(config.embedding_learning_rate)
    return Adagrad(config.embedding_learning_rate, config.embedding_initial_accumulator)
