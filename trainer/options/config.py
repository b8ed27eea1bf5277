"""The configuration of one training run: one frozen value, validated once."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from trainer.errors import ConfigError
from trainer.options.hashed import HashedOptions, read_hashed
from trainer.options.hot_rows import HotOptions
from trainer.options.pruning import PruningOptions, with_kept_defaults, with_recorded_defaults
from trainer.options.rate_schedule import RateSchedule
from trainer.options.resume_rules import changes_weights
from trainer.options.sequences import SequenceOptions, read_sequences
from trainer.options.towers import TowerOptions, with_kept_module, with_recorded_module
from trainer.options.trial_record import TrialRow, read_trial
from transforms.errors import nearest

COMBINERS = ("sum", "mean", "sqrtn")
EMBEDDING_OPTIMIZERS = ("adagrad", "row_wise_adagrad", "sgd", "adam", "ftrl", "adagrad_momentum")
DENSE_OPTIMIZERS = ("adagrad", "adam", "lamb", "lars", "newton", "sgd")
LINEAR_OPTIMIZERS = ("adagrad", "newton")
#: Networks over activations; others are ``module:function``, a builder of a Keras model.
NETWORKS = ("dlrm", "dcn", "fm")
ENGINES = ("cpu", "tpu")
CROSS_STRUCTURES = ("stacked", "parallel")
#: Activations of hidden layers, by Keras's names.
ACTIVATIONS = ("relu", "leaky_relu", "silu", "gelu")
#: Kinds of a map of binary labels' logits after training: :mod:`trainer.model.calibration`.
CALIBRATIONS = ("none", "platt", "isotonic")
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_POSITIVE_RATES = (
    "embedding_learning_rate",
    "embedding_initial_accumulator",
    "embedding_initial_stddev",
    "dense_learning_rate",
    "linear_learning_rate",
    "linear_initial_accumulator",
)

#: The logit of a rate of about 1e-13, below that of any log.
_MOST_BIAS = 30
#: Updates of a row are counted in float32.
MOST_ADMIT_AFTER = 1 << 20
#: More steps ahead hide no longer delay, and hold as many batches in memory.
MOST_STALENESS = 64

#: Kind, mean and deviation of one dense number.
DenseScale = tuple[str, float, float]
SCALE_KINDS = ("plain", "log")

#: Options that a document has only if they are given: those of earlier releases do not have them.
_IF_GIVEN = ("hashed", "learning_rate_schedule", "pruning", "sequences", "tower_modules", "trial")
_PER_HOST = "batch_rows_per_host"
_TOWERS, _PRUNING = "tower_modules", "pruning"


def _no_overrides() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class TrainConfig:
    """Options of one run. Two runs with equal options, data and machine give bit-identical weights if ``deterministic``.

    Attributes:
        run_dir: the folder of checkpoints and lock; one process at a time trains in it.
        batch_rows: events per optimizer step, on all hosts of a job together; the last batch of an epoch may be shorter.
        batch_rows_per_host: ``batch_rows`` are those of each host, so a step of a job has as many times more events as it has hosts.
        dim: embedding width of every input, and the width of the model's dot products.
        dims: widths by input name; such an input is projected to ``dim``.
        combiner, combiners: "sum", "mean" or "sqrtn" of a bag's rows, for all inputs and by input name.
        tables: input name to table name, for inputs that share a table; the default is a table per input.
        embedding_optimizer: with the settings of :mod:`trainer.tables.optimizers` but for the rate, the accumulators of Adagrad,
            row-wise Adagrad and FTRL, and a momentum of 0.9.
        embedding_learning_rate: of the embedding tables, > 0.
        embedding_initial_accumulator: initial value of Adagrad's slots, > 0; low, since gradients of a batch's *mean*
            loss are small.
        embedding_initial_stddev: rows start from a normal of this deviation, truncated at two deviations. Rare rows stay near their
            start, which is noise; products of too small rows have no gradient.
        embedding_weight_decay: before each update a row loses this share of its weights, times the learning rate.
        embedding_dropout: the probability in [0, 1) that the embedding of an input is zero for an event in training, so that the
            model learns to do without each of them; the others are scaled by 1 / (1 - p). Its random state is in the checkpoint.
        admit_after: the optimizer step from which on a row is trained, counted over the steps that have its id: ids that occur more
            rarely keep their initial rows, as unseen ids have. In tables of both parts.
        dense_optimizer: of the dense part: "adagrad", "adam", "lamb", "lars", "newton" or "sgd".
        dense_learning_rate: of the dense part, > 0.
        network: "dlrm", "dcn" (DCN-v2), "fm" (a factorization machine with a weight for each pair of fields), or ``module:function``, which returns a Keras model: see
            :mod:`trainer.model.keras_network`. A function that other processes can import stands for its path.
        network_digest: of the code of such a function; set when a run is prepared.
        embeddings: ``module:function``, which returns the tables of some inputs: see :mod:`trainer.model.user_embeddings`.
        embeddings_digest: of its code, as ``network_digest``.
        activation: of the hidden layers of MLPs. A "relu" unit whose input is negative for all events has no gradient, and stays off.
        dense_bias: a DLRM without dense numbers has a trained vector in their place, so that it also sees each embedding alone.
        bottom_mlp, top_mlp: hidden sizes; the bottom MLP of DLRM ends in ``dim``, the top MLP in the logits. The deep
            MLP of DCN has the sizes of ``top_mlp``.
        cross_layers: cross layers of DCN.
        cross_rank: the rank of their matrices; 0: full.
        cross_structure: "stacked" (the deep MLP follows the cross layers) or "parallel" (it is beside them).
        dropout: between the layers of the top MLP, in [0, 1). Its random state is part of the checkpoint. With
            dropout, progressive validation needs a second forward pass.
        deep, linear: the parts of the model, at least one: a network over embeddings, and a linear model over the same
            inputs (a weight for every id and every number).
        linear_optimizer: of the tables of the linear part: "adagrad", or "newton", a diagonal Newton step: the gradient by the sum of
            its squares, which estimates the curvature. So a step shrinks as one by the number of events, and weights are means
            over all of them, not of the newest ones. Its rate is 1 for a whole step; with ``batch_rows_per_host`` it is
            worth n times as much in a job of n hosts.
        linear_learning_rate: of the tables of the linear part, > 0.
        linear_initial_accumulator: initial value of the slots of the linear part, in squared gradients of *one* event; of "newton",
            the precision of a normal prior of each weight.
        initial_bias: the initial logit of an event without any known input.
        initial_biases: the same by label, of a model of several labels.
        task_weights: by label, the weight of its loss; 1 by default.
        task_mlp: hidden sizes of an MLP of each label of several, between the shared network and its logits.
        dense_scaling: by dense input, for each of its numbers a kind ("plain" or "log"), a mean and a deviation; the
            model's input is (f(x) - mean) / deviation, clipped to [-8, 8]. Other inputs are not scaled.
        partitions_per_epoch: an epoch is so many partitions, unless ``events_per_epoch`` says otherwise.
        events_per_epoch: an epoch is whole partitions in time order until they hold this many events; 0:
            ``partitions_per_epoch`` partitions. Every epoch ends in a checkpoint.
        passes: how often the whole range is trained, at most 255.
        held_out_share: with several passes, the share of the newest events that is scored after each pass over the older ones and trained
            after them all; in [0, 1), 0: none.
        calibration: "none", or "platt" or "isotonic": predictions of binary labels are corrected by a map that is fitted to the held-out events,
            which a run of one pass then has, too. Training does not use it.
        stop_passes_early: end the passes when one does not lower the loss of the held-out events; None: if ``passes`` was chosen.
        seed: of initial weights and dropouts.
        deterministic: TensorFlow computes with operations whose bits do not depend on timing; the compiled dense part always does.
        threads: of the dense part, which affect the bits of the weights.
        count_events: count how often every event was trained (1 byte per event).
        hashed: by the name of an input or its table, the options of a table of an unbounded vocabulary
            (:mod:`trainer.options.hashed`).
        learning_rate_schedule: a warm-up and a decay of all learning rates but those of "newton", whose steps shrink by themselves
            (:mod:`trainer.options.rate_schedule`); None: rates stay.
        pruning: the options of tables that keep their most important rows (:mod:`trainer.options.pruning`); None: all rows are kept.
        sequences: by the name of an input, how the order of its ids is used (:mod:`trainer.options.sequences`); others are bags.
        tower_modules: groups of inputs whose activations are compressed together (:mod:`trainer.options.towers`); None: none are.
        keep_checkpoints: the newest checkpoints that stay, at least 1; older ones are deleted.
        prefetch_fragments: the fragments that are read before training needs them, at least 1.
        staleness: the last steps whose updates a lookup misses, 0 to 64: rows are looked up so many steps before the dense part of their
            step, while earlier steps are trained.
        chosen: option name to the reason for its value, for options that :mod:`trainer.run.choosing` chose.
        trial: the candidates from which options were chosen, as documents with their losses; see :mod:`trainer.run.choosing`.
        engine: "cpu", or "tpu" for a TPU slice, which has the tables unless they are on parameter servers: :mod:`trainer.options.slice_tables`.
            Checkpoints are the same, so it may change when a run continues.
        statistics_share: the share of batches from which the statistics of features are sampled, in [0, 1]; 0: none.
        hot_rows: the rows of tables on parameter servers that stay in the memory of the process that trains (:mod:`trainer.options.hot_rows`);
            None: none do. No bit depends on it.
    """

    run_dir: str
    batch_rows: int = 1024
    batch_rows_per_host: bool = False
    dim: int = 16
    dims: Mapping[str, int] = field(default_factory=_no_overrides)
    combiner: str = "mean"
    combiners: Mapping[str, str] = field(default_factory=_no_overrides)
    tables: Mapping[str, str] = field(default_factory=_no_overrides)
    embedding_optimizer: str = "adagrad"
    embedding_learning_rate: float = 0.01
    embedding_initial_accumulator: float = 1e-8
    embedding_initial_stddev: float = 0.01
    embedding_weight_decay: float = 0.0
    embedding_dropout: float = 0.0
    admit_after: int = 1
    dense_optimizer: str = "adam"
    dense_learning_rate: float = 0.003
    network: str = "dlrm"
    network_digest: str = ""
    embeddings: str = ""
    embeddings_digest: str = ""
    cross_layers: int = 2
    cross_rank: int = 0
    cross_structure: str = "stacked"
    activation: str = "relu"
    dense_bias: bool = False
    bottom_mlp: tuple[int, ...] = (64,)
    top_mlp: tuple[int, ...] = (64, 32)
    dropout: float = 0.0
    partitions_per_epoch: int = 1
    passes: int = 1
    held_out_share: float = 0.1
    stop_passes_early: bool | None = None
    calibration: str = "none"
    seed: int = 0
    deterministic: bool = True
    threads: int = 1
    count_events: bool = True
    deep: bool = True
    linear: bool = False
    linear_learning_rate: float = 0.1
    linear_initial_accumulator: float = 1.0
    linear_optimizer: str = "adagrad"
    initial_bias: float = 0.0
    initial_biases: Mapping[str, float] = field(default_factory=_no_overrides)
    task_weights: Mapping[str, float] = field(default_factory=_no_overrides)
    task_mlp: tuple[int, ...] = ()
    dense_scaling: Mapping[str, tuple[DenseScale, ...]] = field(default_factory=_no_overrides)
    events_per_epoch: int = 0
    chosen: Mapping[str, str] = field(default_factory=_no_overrides)
    trial: tuple[TrialRow, ...] = ()
    hashed: Mapping[str, HashedOptions] = field(default_factory=_no_overrides)
    learning_rate_schedule: RateSchedule | None = None
    pruning: PruningOptions | None = None
    sequences: Mapping[str, SequenceOptions] = field(default_factory=_no_overrides)
    tower_modules: TowerOptions | None = None
    staleness: int = 0
    engine: str = "cpu"
    keep_checkpoints: int = 2
    prefetch_fragments: int = 1
    statistics_share: float = 0.03
    hot_rows: HotOptions | None = None

    def __post_init__(self) -> None:
        for name in ("network", "embeddings"):
            if callable(getattr(self, name)):
                object.__setattr__(self, name, _path_of(name, getattr(self, name)))
        for name in ("dims", "combiners", "tables", "dense_scaling", "initial_biases", "task_weights", "chosen"):
            if not isinstance(getattr(self, name), Mapping):
                _refuse(name, getattr(self, name), "an object by name")
            object.__setattr__(self, name, MappingProxyType(dict(sorted(getattr(self, name).items()))))
        object.__setattr__(self, "hashed", MappingProxyType(read_hashed(self.hashed)))
        object.__setattr__(self, "sequences", MappingProxyType(read_sequences(self.sequences)))
        if self.learning_rate_schedule is not None:
            object.__setattr__(self, "learning_rate_schedule", RateSchedule.read(self.learning_rate_schedule))
        object.__setattr__(self, "pruning", None if self.pruning is None else PruningOptions.read(self.pruning))
        object.__setattr__(self, "hot_rows", None if self.hot_rows is None else HotOptions.read(self.hot_rows))
        if self.tower_modules is not None:
            object.__setattr__(self, "tower_modules", TowerOptions.read(self.tower_modules))
        object.__setattr__(self, "trial", read_trial(self.trial))
        for name in ("bottom_mlp", "top_mlp", "task_mlp"):
            if not isinstance(getattr(self, name), (list, tuple)):
                _refuse(name, getattr(self, name), "a list of widths")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.run_dir, str) or not self.run_dir:
            _refuse("run_dir", self.run_dir, "a path")
        scaling = {name: _scales(name, scales) for name, scales in self.dense_scaling.items()}
        object.__setattr__(self, "dense_scaling", MappingProxyType(scaling))
        self._check_counts()
        self._check_choices()
        self._check_rates()

    def _check_counts(self) -> None:
        for name in ("batch_rows", "dim", "partitions_per_epoch", "threads", "keep_checkpoints", "prefetch_fragments"):
            _check_count(name, getattr(self, name))
        _check_count("passes", self.passes, most=255)
        _check_count("events_per_epoch", self.events_per_epoch, least=0, most=2**62)
        _check_count("cross_layers", self.cross_layers, most=64)
        _check_count("cross_rank", self.cross_rank, least=0)
        _check_count("admit_after", self.admit_after, most=MOST_ADMIT_AFTER)
        _check_count("staleness", self.staleness, least=0, most=MOST_STALENESS)
        _check_count("seed", self.seed, least=0, most=2**31 - 1)
        for name, width in self.dims.items():
            _check_count(f"dims[{name!r}]", width)
        for name in ("bottom_mlp", "top_mlp", "task_mlp"):
            for width in getattr(self, name):
                _check_count(name, width)

    def _check_choices(self) -> None:
        _check_choice("combiner", self.combiner, COMBINERS)
        _check_choice("embedding_optimizer", self.embedding_optimizer, EMBEDDING_OPTIMIZERS)
        _check_choice("dense_optimizer", self.dense_optimizer, DENSE_OPTIMIZERS)
        _check_choice("linear_optimizer", self.linear_optimizer, LINEAR_OPTIMIZERS)
        _check_choice("cross_structure", self.cross_structure, CROSS_STRUCTURES)
        _check_choice("activation", self.activation, ACTIVATIONS)
        _check_choice("calibration", self.calibration, CALIBRATIONS)
        self._check_functions()
        _check_choice("engine", self.engine, ENGINES)
        for name, table in self.tables.items():
            if not isinstance(table, str) or not table:
                _refuse(f"tables[{name!r}]", table, "the name of a table")
        for name, combiner in self.combiners.items():
            _check_choice(f"combiners[{name!r}]", combiner, COMBINERS)
        for name in ("deterministic", "count_events", "deep", "linear", "dense_bias", "batch_rows_per_host"):
            if not isinstance(getattr(self, name), bool):
                _refuse(name, getattr(self, name), "true or false")
        if self.stop_passes_early not in (None, True, False):
            _refuse("stop_passes_early", self.stop_passes_early, "true, false or absent")
        if not (self.deep or self.linear):
            _refuse("deep", False, "true unless linear is true")
        for name, reason in self.chosen.items():
            if not isinstance(reason, str):
                _refuse(f"chosen[{name!r}]", reason, "a text, the reason")

    @property
    def batches_held(self) -> int:
        """The number of batches between a lookup and its update, for which an engine keeps its data."""
        return max(self.staleness, 1) + 1

    def _check_functions(self) -> None:
        if not isinstance(self.network, str) or not (self.network in NETWORKS or _PATH.fullmatch(self.network)):
            _refuse("network", self.network, f"{', '.join(NETWORKS)} or module:function")
        if not isinstance(self.embeddings, str) or not (not self.embeddings or _PATH.fullmatch(self.embeddings)):
            _refuse("embeddings", self.embeddings, "module:function, or absent")
        for name, is_own in (("network", self.has_own_network), ("embeddings", bool(self.embeddings))):
            digest = getattr(self, f"{name}_digest")
            if not isinstance(digest, str) or (digest and not is_own):
                _refuse(f"{name}_digest", digest, f"absent: it is computed from the function of {name}")

    def rows_of_step(self, hosts: int) -> int:
        """The events of a step of a job with so many hosts."""
        return self.batch_rows * hosts if self.batch_rows_per_host else self.batch_rows

    def rows_of_host(self, hosts: int) -> int:
        """The most events of a step that one of so many hosts trains."""
        return self.batch_rows if self.batch_rows_per_host else -(-self.batch_rows // hosts)

    @property
    def stops_passes_early(self) -> bool:
        """Whether passes end when one does not lower the loss of the held-out events."""
        return "passes" in self.chosen if self.stop_passes_early is None else self.stop_passes_early

    @property
    def has_own_network(self) -> bool:
        """Whether the network is a function of the user."""
        return self.network not in NETWORKS

    @property
    def has_own_code(self) -> bool:
        """Whether any option names a function of the user."""
        return self.has_own_network or bool(self.embeddings)

    def _check_rates(self) -> None:
        for name in _POSITIVE_RATES:
            value = getattr(self, name)
            if not _is_real(value) or not (0 < value < math.inf):
                _refuse(name, value, "a finite number > 0")
        if self.learning_rate_schedule is not None and self.deep and self.embedding_optimizer == "ftrl":
            _refuse("embedding_optimizer", "ftrl", "another one than ftrl with learning_rate_schedule: its weights are sums times the rate, "
                    "so that another rate would scale all of them")  # fmt: skip
        for name in ("dropout", "embedding_dropout"):
            if not _is_real(getattr(self, name)) or not 0 <= getattr(self, name) < 1:
                _refuse(name, getattr(self, name), "a number in [0, 1)")
        if not _is_real(self.embedding_weight_decay) or not 0 <= self.embedding_weight_decay < math.inf:
            _refuse("embedding_weight_decay", self.embedding_weight_decay, "a finite number >= 0")
        if not _is_real(self.held_out_share) or not 0 <= self.held_out_share < 1:
            _refuse("held_out_share", self.held_out_share, "a number in [0, 1)")
        if self.calibration != "none" and not self.held_out_share:
            _refuse(
                "held_out_share", self.held_out_share, "above 0 with calibration, which is fitted to held-out events"
            )
        if not _is_real(self.statistics_share) or not 0 <= self.statistics_share <= 1:
            _refuse("statistics_share", self.statistics_share, "a number in [0, 1]")
        biases = {f"initial_biases[{name!r}]": bias for name, bias in self.initial_biases.items()}
        for name, bias in {"initial_bias": self.initial_bias, **biases}.items():
            if not _is_real(bias) or not abs(bias) <= _MOST_BIAS:
                _refuse(name, bias, f"a number in [-{_MOST_BIAS}, {_MOST_BIAS}]")
        for name, weight in self.task_weights.items():
            if not _is_real(weight) or not 0 <= weight < math.inf:
                _refuse(f"task_weights[{name!r}]", weight, "a finite number >= 0")

    def to_document(self) -> dict[str, object]:
        """The options that affect weights, as a JSON object; those of :data:`_IF_GIVEN` are among them only if they are given.

        Without ``batch_rows_per_host`` it is an object of an earlier release, whose hosts had a batch each: :func:`recorded_options`.
        """
        return {
            option.name: _plain(getattr(self, option.name))
            for option in dataclasses.fields(self)
            if changes_weights(option.name)
            and (option.name not in _IF_GIVEN or getattr(self, option.name))
            and not (option.name == _PER_HOST and self.batch_rows_per_host)
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, run_dir: str) -> TrainConfig:
        """The configuration of a document. Raises :class:`ConfigError` for an unknown option."""
        known = {option.name for option in dataclasses.fields(cls)}
        for name in document:
            if name not in known:
                raise ConfigError("a training option must be a known one", value=name, allowed=nearest(name, known))
        return cls(**{**document, "run_dir": run_dir})


def recorded_options(document: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a run by the document that it recorded, which keeps its meaning: :meth:`TrainConfig.to_document`."""
    found = {_PER_HOST: True, **document}
    if _TOWERS in found:
        found[_TOWERS] = with_recorded_module(found[_TOWERS])
    if _PRUNING in found:
        found[_PRUNING] = with_recorded_defaults(found[_PRUNING])
    return found


def continued_options(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the rest of a run: those ``asked`` for, else those that it recorded."""
    kept = recorded_options(recorded)
    found = {**kept, **asked}
    if _TOWERS in asked:
        found[_TOWERS] = with_kept_module(asked[_TOWERS], kept.get(_TOWERS))
    if _PRUNING in asked:
        found[_PRUNING] = with_kept_defaults(asked[_PRUNING], kept.get(_PRUNING))
    return found


def _path_of(option: str, function: object) -> str:
    """``module:function`` of a function that another process can import. Raises :class:`ConfigError` for any other."""
    from transforms.functions.outside import importable  # imports numba

    found = importable(function)
    if found is None or found[0] == "__main__":
        raise ConfigError(f"the function of {option} must be importable in other processes", where=option, value=function,
                          allowed="a function at the top level of a module, by object or as module:function",
                          next_step="define it at the top level of a module beside the program")  # fmt: skip
    return ":".join(found)


def _plain(value: Any) -> object:
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, HashedOptions | PruningOptions | RateSchedule | SequenceOptions | TowerOptions | TrialRow):
        return value.to_document()
    return [_plain(member) for member in value] if isinstance(value, (tuple, list)) else value


def _scales(name: str, scales: object) -> tuple[DenseScale, ...]:
    """The scales of one input, checked."""
    where = f"dense_scaling[{name!r}]"
    if not isinstance(scales, (list, tuple)):
        _refuse(where, scales, "a list of [kind, mean, deviation]")
    checked: list[DenseScale] = []
    for scale in scales:
        if not isinstance(scale, (list, tuple)) or len(scale) != 3:
            _refuse(where, scale, "a list of [kind, mean, deviation]")
        kind, mean, deviation = scale
        _check_choice(where, kind, SCALE_KINDS)
        if not _is_real(mean) or not math.isfinite(mean):
            _refuse(where, mean, "a list of scales with finite means")
        if not _is_real(deviation) or not 0 < deviation < math.inf:
            _refuse(where, deviation, "a list of scales with finite deviations > 0")
        checked.append((kind, float(mean), float(deviation)))
    return tuple(checked)


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_count(name: str, value: object, *, least: int = 1, most: int = 2**31 - 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(name, value, f"an integer in [{least}, {most}]")


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        _refuse(name, value, f"one of {', '.join(allowed)}")


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise ConfigError(
        f"{name} must be {allowed}", where=name, value=value, allowed=allowed, next_step="correct this training option"
    )
