"""How one training run is configured: one frozen value, validated once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trainer.errors import ConfigError
from transforms.errors import nearest

COMBINERS = ("sum", "mean")
EMBEDDING_OPTIMIZERS = ("adagrad", "sgd")
DENSE_OPTIMIZERS = ("adagrad", "adam", "sgd")
_POSITIVE_RATES = (
    "embedding_learning_rate",
    "embedding_initial_accumulator",
    "embedding_initial_stddev",
    "dense_learning_rate",
)

#: A field with this metadata may differ between the run that wrote a checkpoint and the run that continues it,
#: because it does not touch a single weight.
MAY_CHANGE: Mapping[str, bool] = MappingProxyType({"may_change": True})


def _no_overrides() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class TrainConfig:
    """Options of one run. Two runs with equal options, data and machine give bit-identical weights if ``deterministic``.

    ``run_dir``: where checkpoints and the lock live; one process trains in it at a time.
    ``batch_rows``: events an optimizer step. The last batch of an epoch may be shorter.
    ``dim``: embedding width of every input, and the width in which the model takes dot products. ``dims`` overrides it
    by input name; such an input is projected to ``dim``. ``combiner``/``combiners``: "sum" or "mean" of a bag's rows.
    ``tables``: input name to table name, for inputs that share one table (default: a table of its own, by its name).
    ``embedding_initial_accumulator``: what Adagrad's slots start from, > 0. Gradients are those of the *mean* loss of a
    batch, hence small; start low. ``embedding_initial_stddev``: rows start from a normal of this deviation, cut at two; rows
    that are rare stay near their start, which is noise to the model, so keep it small too.
    ``bottom_mlp``/``top_mlp``: hidden sizes; the bottom tower ends in ``dim``, the top one in one logit.
    ``dropout``: between the layers of the top tower, in [0, 1). Its random state is part of the checkpoint. With dropout,
    progressive validation costs a second forward pass.
    ``partitions_per_epoch``: an epoch is so many partitions in time order and ends in a checkpoint.
    ``passes``: how often the whole range is trained, at most 255.
    ``threads``: TensorFlow's compute threads, part of what determinism means.
    ``count_events``: keep a count for every event of how often it was trained (1 byte an event).
    """

    run_dir: str = field(metadata=MAY_CHANGE)
    batch_rows: int = 1024
    dim: int = 16
    dims: Mapping[str, int] = field(default_factory=_no_overrides)
    combiner: str = "mean"
    combiners: Mapping[str, str] = field(default_factory=_no_overrides)
    tables: Mapping[str, str] = field(default_factory=_no_overrides)
    embedding_optimizer: str = "adagrad"
    embedding_learning_rate: float = 0.01
    embedding_initial_accumulator: float = 1e-8
    embedding_initial_stddev: float = 0.01
    dense_optimizer: str = "adam"
    dense_learning_rate: float = 0.003
    bottom_mlp: tuple[int, ...] = (64,)
    top_mlp: tuple[int, ...] = (64, 32)
    dropout: float = 0.0
    partitions_per_epoch: int = 1
    passes: int = 1
    seed: int = 0
    deterministic: bool = True
    threads: int = 1
    count_events: bool = True
    keep_checkpoints: int = field(default=2, metadata=MAY_CHANGE)
    prefetch_fragments: int = field(default=1, metadata=MAY_CHANGE)

    def __post_init__(self) -> None:
        for name in ("dims", "combiners", "tables"):
            if not isinstance(getattr(self, name), Mapping):
                _refuse(name, getattr(self, name), "an object by input name")
            object.__setattr__(self, name, MappingProxyType(dict(sorted(getattr(self, name).items()))))
        for name in ("bottom_mlp", "top_mlp"):
            if not isinstance(getattr(self, name), (list, tuple)):
                _refuse(name, getattr(self, name), "a list of widths")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.run_dir, str) or not self.run_dir:
            _refuse("run_dir", self.run_dir, "a path")
        self._check_counts()
        self._check_choices()
        self._check_rates()

    def _check_counts(self) -> None:
        for name in ("batch_rows", "dim", "partitions_per_epoch", "threads", "keep_checkpoints", "prefetch_fragments"):
            _check_count(name, getattr(self, name))
        _check_count("passes", self.passes, most=255)
        _check_count("seed", self.seed, least=0, most=2**31 - 1)
        for name, width in self.dims.items():
            _check_count(f"dims[{name!r}]", width)
        for name in ("bottom_mlp", "top_mlp"):
            for width in getattr(self, name):
                _check_count(name, width)

    def _check_choices(self) -> None:
        _check_choice("combiner", self.combiner, COMBINERS)
        _check_choice("embedding_optimizer", self.embedding_optimizer, EMBEDDING_OPTIMIZERS)
        _check_choice("dense_optimizer", self.dense_optimizer, DENSE_OPTIMIZERS)
        for name, table in self.tables.items():
            if not isinstance(table, str) or not table:
                _refuse(f"tables[{name!r}]", table, "the name of a table")
        for name, combiner in self.combiners.items():
            _check_choice(f"combiners[{name!r}]", combiner, COMBINERS)
        for name in ("deterministic", "count_events"):
            if not isinstance(getattr(self, name), bool):
                _refuse(name, getattr(self, name), "true or false")

    def _check_rates(self) -> None:
        for name in _POSITIVE_RATES:
            value = getattr(self, name)
            if not _is_real(value) or not (0 < value < math.inf):
                _refuse(name, value, "a finite number > 0")
        if not _is_real(self.dropout) or not 0 <= self.dropout < 1:
            _refuse("dropout", self.dropout, "a number in [0, 1)")

    def to_document(self) -> dict[str, object]:
        """Every option that decides weights, as a JSON object; what may change between runs is left out."""
        return {
            option.name: _plain(getattr(self, option.name))
            for option in dataclasses.fields(self)
            if not option.metadata.get("may_change")
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, run_dir: str) -> TrainConfig:
        """The configuration of a document. Raises :class:`ConfigError` for an option that does not exist."""
        known = {option.name for option in dataclasses.fields(cls)}
        for name in document:
            if name not in known:
                raise ConfigError("unknown training option", value=name, allowed=nearest(name, known))
        return cls(**{**document, "run_dir": run_dir})


def _plain(value: Any) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_count(name: str, value: object, *, least: int = 1, most: int = 2**31 - 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(name, value, f"an integer in [{least}, {most}]")


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        _refuse(name, value, ", ".join(allowed))


def _refuse(name: str, value: object, allowed: str) -> None:
    raise ConfigError("a training option is out of range", where=name, value=value, allowed=allowed)
