"""The use of each model input, by its type alone, and the table of each embedded one, by the options.

==============================  ========================================================
type                            use
==============================  ========================================================
``Ragged[int64, buckets=n]``    a bag of ids, embedded in a table of n rows
``Weighted[int64, buckets=n]``  the same, with a weight per id
``Vector[int64, buckets=n]``    the same, with equally many ids per event
``Dense[int64, buckets=n]``     one id, embedded; null is the empty bag
``Dense`` number or bool        one float32 of the dense vector; null is 0
``Vector`` numbers or bools     as many float32 of the dense vector
other types                     refused, with a remedy for the expression
==============================  ========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainer.errors import ConfigError, UntrainableInput
from trainer.model.optimizers.rate_clock import RateClock, ScheduledRate
from trainer.model.sequence_layout import SequencePlace, with_sequences
from trainer.model.tower_shapes import tower_shapes
from trainer.model.unbounded_tables import hashed_tables
from trainer.model.user_embeddings import described_features
from trainer.options.combinations import Setup, check_setup
from trainer.options.config import TrainConfig
from trainer.tables.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, LearningRate, Optimizer, RowWiseAdagrad
from trainer.tables.spec import FeatureSpec, Normal, TableSpec, tables_of
from transforms.errors import nearest
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted


@dataclass(frozen=True, slots=True)
class TypedInput:
    """The name and type of a model input."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Inputs in the order of batches: ``embedded`` inputs are bags of ids of ``features``, ``dense`` ones columns of a matrix.

    Attributes:
        sequences: the inputs among the embedded ones whose order is used.
        clock: that of the learning rates of the tables.
    """

    embedded: tuple[TypedInput, ...]
    dense: tuple[TypedInput, ...]
    features: tuple[FeatureSpec, ...]
    sequences: tuple[SequencePlace, ...] = ()
    clock: RateClock = field(default_factory=lambda: RateClock(None), compare=False, repr=False)

    @property
    def number_width(self) -> int:
        """Columns of the dense inputs."""
        return sum(width_of(item.type) for item in self.dense)

    @property
    def dense_width(self) -> int:
        """Columns of the matrix of a batch: those of the dense inputs, and the length of each sequence."""
        return self.number_width + len(self.sequences)

    def encoded(self) -> InputLayout:
        """What the network behind the encoders of sequences sees: one vector for each sequence, of which its gaps are a part."""
        if not self.sequences:
            return self
        rows, gaps = {one.rows for one in self.sequences}, {one.gaps for one in self.sequences}
        kept = [f for f in range(len(self.features)) if f not in gaps]
        features = [replace(self.features[f], max_sequence_length=0) if f in rows else self.features[f] for f in kept]
        return InputLayout(tuple(self.embedded[f] for f in kept), self.dense, tuple(features), clock=self.clock)

    @property
    def bounds(self) -> tuple[int, ...]:
        """The rows of the table of every embedded input, the exclusive bound of its ids."""
        return tuple(feature.table.vocabulary_size for feature in self.features)

    @property
    def is_weighted(self) -> bool:
        """Whether the ids of any input have weights."""
        return any(isinstance(item.type, Weighted) for item in self.embedded)


def width_of(column_type: ColumnType) -> int:
    """The number of floats of an input of this type in the dense vector."""
    return column_type.size if isinstance(column_type, Vector) else 1


def lay_out(inputs: Sequence[TypedInput], config: TrainConfig) -> InputLayout:
    """Decide the use of every input.

    Raises :class:`UntrainableInput` for a type that the model does not take, :class:`ConfigError` for options that name unknown
    inputs, or inputs that share a table but not its size, and the errors of
    :func:`~trainer.model.user_embeddings.described_features`, :func:`~trainer.model.sequence_layout.with_sequences`,
    :func:`~trainer.model.unbounded_tables.hashed_tables` and :func:`~trainer.model.tower_shapes.tower_shapes`.
    """
    for item in inputs:
        _check_type(item)
    embedded = tuple(item for item in inputs if item.type.buckets is not None)
    dense = tuple(item for item in inputs if item.type.buckets is None)
    if not inputs:
        raise ConfigError(
            "a model must have at least one input", next_step="add inputs with model.input(name, expression)"
        )
    _check_names(embedded, config)
    clock = RateClock(config.learning_rate_schedule)
    optimizer = _optimizer(config, rate_of(config, config.embedding_learning_rate, clock))
    buckets = {item.name: item.type.buckets or 0 for item in embedded}
    described = described_features(config, buckets, optimizer)
    bags = [described.get(item.name) or FeatureSpec(item.name, _table(item, config, optimizer)) for item in embedded]
    features, sequences = with_sequences(bags, buckets, config)
    tables_of(features)
    hashed_tables(features, config)
    check_setup(Setup(sequences=bool(sequences), tower_modules=config.tower_modules is not None))
    tower_shapes(features, config)
    return InputLayout(embedded, dense, features, sequences, clock)


def rate_of(config: TrainConfig, rate: float, clock: RateClock) -> LearningRate:
    """A learning rate of tables: that of the clock where there is a schedule."""
    return rate if config.learning_rate_schedule is None else ScheduledRate(rate, clock)


def _check_type(item: TypedInput) -> None:
    if item.type.buckets is not None:
        return
    if isinstance(item.type, (Dense, Vector)) and (item.type.dtype.is_numeric or item.type.dtype is DType.BOOL):
        return
    raise UntrainableInput(
        "an input must have a type that the model takes",
        where=f"input {item.name}",
        value=str(item.type),
        allowed="int64 ids with buckets, or one number or bool, or a vector of them, per event",
        next_step=_remedy(item.type),
    )


def _remedy(column_type: ColumnType) -> str:
    if column_type.dtype is DType.TIMESTAMP:
        return "derive a number from the time, such as .hour_of_day(), or add .hash_buckets(n) to it"
    if isinstance(column_type, Vector):
        return "read it as a list with hr.ragged, and add .hash_buckets(n) and, for a vector, .pad(size, 0)"
    if column_type.dtype is DType.INT64 and not isinstance(column_type, Weighted):
        return "add .hash_buckets(n) to the expression, or .modulo(n) if its numbers are ids below n already"
    if column_type.dtype in (DType.STRING, DType.INT64):
        return "add .hash_buckets(n) to the expression"
    if isinstance(column_type, Ragged):
        return (
            "reduce it to one number per event, such as .count() or .pool(), or make it a vector with .pad(size, 0.0)"
        )
    return "take its parts with .ids() and .weights()"


def _check_names(embedded: Sequence[TypedInput], config: TrainConfig) -> None:
    names = [item.name for item in embedded]
    for option in ("dims", "combiners", "tables"):
        for name in getattr(config, option):
            if name not in names:
                raise ConfigError(
                    "an option must name an embedded input", where=option, value=name, allowed=nearest(name, names)
                )


def _table(item: TypedInput, config: TrainConfig, optimizer: Optimizer) -> TableSpec:
    return TableSpec(
        name=config.tables.get(item.name, item.name),
        vocabulary_size=item.type.buckets or 0,
        dim=config.dims.get(item.name, config.dim),
        optimizer=optimizer,
        combiner=config.combiners.get(item.name, config.combiner),
        initializer=Normal(0.0, config.embedding_initial_stddev),
    )


def _optimizer(config: TrainConfig, rate: LearningRate) -> Optimizer:
    """The optimizer of the embedding tables."""
    decay = config.embedding_weight_decay
    return replace(
        _by_name(config, rate),
        admit_after=config.admit_after,
        weight_decay_factor=decay or None,
        multiply_weight_decay_factor_by_learning_rate=decay > 0,
    )


def _by_name(config: TrainConfig, rate: LearningRate) -> Optimizer:
    start = config.embedding_initial_accumulator
    match config.embedding_optimizer:
        case "sgd":
            return SGD(rate)
        case "row_wise_adagrad":
            return RowWiseAdagrad(rate, start)
        case "adam":
            return Adam(rate)
        case "ftrl":
            return FTRL(rate, initial_accumulator=start)
        case "adagrad_momentum":
            return AdagradMomentum(rate, momentum=0.9)
        case _:
            return Adagrad(rate, start)
