"""Specs of the optimizers of embedding tables: frozen values without TensorFlow.

Names and defaults are those of ``tf.tpu.experimental.embedding``, and so are the formulas: they are those of the programs that
TensorFlow lowers for SparseCore. :class:`RowWiseAdagrad` is FBGEMM's, and only light specs have it. In each formula g is the sum of
a row's gradients over the batch, clipped to the gradient's limits, and w the row after weight decay; the new row is clipped to the
weights' limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.options.config import MOST_ADMIT_AFTER

_FLOAT32_MAX = 3.4028234663852886e38

#: A number, or a function that gives it before each update.
LearningRate = float | Callable[[], float]


@dataclass(frozen=True, slots=True)
class Slot:
    """A kind of values that an optimizer keeps for each row.

    Attributes:
        name: TensorFlow's name for it.
        is_row_wise: whether it has one value a row, not one a column.
        initial: its value before the first update.
    """

    name: str
    is_row_wise: bool = False
    initial: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """What all optimizers have.

    Attributes:
        use_gradient_accumulation: sum the gradients of a row before its update; False is refused by engines that always do.
        clip_weight_min, clip_weight_max: limits of the weights after an update, or None.
        clip_gradient_min, clip_gradient_max: limits of a row's summed gradient, or None (``clipvalue`` in TensorFlow).
        weight_decay_factor: before the update, w ← w - factor · w.
        multiply_weight_decay_factor_by_learning_rate: the factor is multiplied by the learning rate.
        low_dimensional_packing_status: how a TPU may lay out narrow tables; it changes no value.
        admit_after: the update from which on a row changes; its earlier updates are only counted, in a slot of the row. TPU engines and
            TensorFlow have 1.
    """

    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool = False
    low_dimensional_packing_status: bool = False
    admit_after: int = 1

    @property
    def own_slots(self) -> tuple[Slot, ...]:
        """The slots of the optimizer's formula."""
        return ()

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots of a row: those of the formula, then the counted updates where ``admit_after`` is above 1."""
        return (*self.own_slots, Slot("updates", True)) if self.admit_after > 1 else self.own_slots

    def _check_settings(self, learning_rate: LearningRate) -> None:
        if not callable(learning_rate):
            _check("learning_rate", learning_rate, 0, exclusive=True)
        for limit in ("clip_weight", "clip_gradient"):
            least, most = getattr(self, f"{limit}_min"), getattr(self, f"{limit}_max")
            for name, value in ((f"{limit}_min", least), (f"{limit}_max", most)):
                if value is not None:
                    _check(name, value)
            if least is not None and most is not None and least > most:
                raise ConfigError(f"an optimizer's {limit}_min must be <= {limit}_max", value=(least, most))
        _check("admit_after", self.admit_after, 1, MOST_ADMIT_AFTER)
        if int(self.admit_after) != self.admit_after:
            raise ConfigError("an optimizer's admit_after must be a whole number", value=self.admit_after)
        if self.weight_decay_factor is not None:
            _check("weight_decay_factor", self.weight_decay_factor, 0)
        if not self.use_gradient_accumulation and (self.clip_gradient_min, self.clip_gradient_max) != (None, None):
            raise ConfigError("an optimizer with gradient limits must accumulate gradients",
                              value="use_gradient_accumulation=False", allowed="True")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SGD(OptimizerSettings):
    """``w ← w - learning_rate · g``."""

    learning_rate: LearningRate

    def __post_init__(self) -> None:
        self._check_settings(self.learning_rate)


@dataclass(frozen=True, slots=True)
class Adagrad(OptimizerSettings):
    """``a ← a + g²; w ← w - learning_rate · g / √a`` with ``a`` starting at ``initial_accumulator`` > 0, no epsilon.

    Duchi, Hazan, Singer (JMLR 2011).
    """

    learning_rate: LearningRate
    initial_accumulator: float = 0.1

    def __post_init__(self) -> None:
        self._check_settings(self.learning_rate)
        _check("initial_accumulator", self.initial_accumulator, 0, exclusive=True)

    @property
    def own_slots(self) -> tuple[Slot, ...]:
        """The accumulators ``a``."""
        return (Slot("accumulators", initial=self.initial_accumulator),)


@dataclass(frozen=True, slots=True)
class RowWiseAdagrad(OptimizerSettings):
    """``a ← a + mean(g²); w ← w - learning_rate / (√a + epsilon) · g``, with one ``a`` a row.

    FBGEMM's EXACT_ROWWISE_ADAGRAD. TPU engines do not have it.
    """

    learning_rate: LearningRate
    initial_accumulator: float = 0.0
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        self._check_settings(self.learning_rate)
        _check("initial_accumulator", self.initial_accumulator, 0)
        _check("epsilon", self.epsilon, 0, exclusive=True)

    @property
    def own_slots(self) -> tuple[Slot, ...]:
        """The accumulator ``a`` of each row."""
        return (Slot("accumulators", True, self.initial_accumulator),)


@dataclass(frozen=True, slots=True)
class AdagradMomentum(OptimizerSettings):
    """Adagrad's scaled gradient under momentum.

    ``a ← a + g²`` if beta2 is 1, else ``a ← beta2 · a + (1 - beta2) · g²``; ``s = (a + epsilon)^(-1/exponent) · g``;
    ``m ← momentum · m + s``; ``w ← w - learning_rate · m``, or with Nesterov ``w ← w - learning_rate · (momentum · m + s)``.
    """

    learning_rate: LearningRate
    momentum: float = 0.0
    use_nesterov: bool = False
    exponent: float = 2.0
    beta2: float = 1.0
    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        self._check_settings(self.learning_rate)
        _check("momentum", self.momentum, 0)
        _check("exponent", self.exponent, 0, exclusive=True)
        _check("beta2", self.beta2, 0, 1)
        _check("epsilon", self.epsilon, 0, exclusive=True)

    @property
    def own_slots(self) -> tuple[Slot, ...]:
        """The accumulators ``a`` and the momenta ``m``."""
        return Slot("accumulators"), Slot("momenta")


@dataclass(frozen=True, slots=True)
class Adam(OptimizerSettings):
    """Lazy Adam (Kingma, Ba, ICLR 2015) without bias correction, as on TPUs: rows outside the batch do not change.

    ``m ← beta_1 · m + (1 - beta_1) · g; v ← beta_2 · v + (1 - beta_2) · g²; w ← w - learning_rate · m / √(v + epsilon²)``, and
    without ``sum_inside_sqrt`` ``… / (√v + epsilon)``. A corrected rate is a ``learning_rate`` function.
    """

    learning_rate: LearningRate
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    lazy_adam: bool = True
    sum_inside_sqrt: bool = True

    def __post_init__(self) -> None:
        self._check_settings(self.learning_rate)
        for name in ("beta_1", "beta_2"):
            _check(name, getattr(self, name), 0, 1)
            if getattr(self, name) == 1:
                raise ConfigError(f"an optimizer's {name} must be < 1", value=1.0, allowed="[0, 1)")
        _check("epsilon", self.epsilon, 0, exclusive=True)

    @property
    def own_slots(self) -> tuple[Slot, ...]:
        """The moments ``m`` and ``v``."""
        return Slot("momenta"), Slot("velocities")


@dataclass(frozen=True, slots=True)
class FTRL(OptimizerSettings):
    """Follow the regularised leader (McMahan et al., KDD 2013).

    With ``p = -learning_rate_power``, ``σ = ((a + g²)^p - a^p) / learning_rate``: ``a ← a + g²; l ← l + g - σ · w``;
    ``w ← (clip(l, ±l1) - l) / ((a^p + beta) / learning_rate + 2 · l2)``. With ``multiply_linear_by_learning_rate`` the slot is
    ``learning_rate · l``.
    """

    learning_rate: LearningRate
    learning_rate_power: float = -0.5
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    beta: float = 0.0
    initial_accumulator: float = 0.1
    multiply_linear_by_learning_rate: bool = False
    allow_zero_accumulator: bool = False

    def __post_init__(self) -> None:
        self._check_settings(self.learning_rate)
        _check("learning_rate_power", self.learning_rate_power, most=0)
        for name in ("l1_regularization_strength", "l2_regularization_strength", "beta"):
            _check(name, getattr(self, name), 0)
        _check("initial_accumulator", self.initial_accumulator, 0, exclusive=not self.allow_zero_accumulator)

    @property
    def own_slots(self) -> tuple[Slot, ...]:
        """The accumulators ``a`` and the linear terms ``l``."""
        return Slot("accumulators", initial=self.initial_accumulator), Slot("linears")


Optimizer = SGD | Adagrad | RowWiseAdagrad | AdagradMomentum | Adam | FTRL


def slot_width(optimizer: Optimizer, dim: int) -> int:
    """Values that ``optimizer`` keeps for a row of ``dim`` columns: those of all its slots, one slot after the other."""
    return sum(1 if slot.is_row_wise else dim for slot in optimizer.slots)


def current_learning_rate(optimizer: Optimizer) -> float:
    """The learning rate of the next update. Raises :class:`ConfigError` for one that is not a finite number >= 0."""
    rate = optimizer.learning_rate
    if not callable(rate):
        return rate
    value = float(rate())
    _check("learning_rate", value, 0)
    return value


def _check(name: str, value: object, least: float = -_FLOAT32_MAX, most: float = _FLOAT32_MAX, *, exclusive: bool = False) -> None:  # fmt: skip
    """Refuse a setting that is not a finite number of this range, whose least value is ``exclusive`` or not."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if real and least <= value <= most and not (exclusive and value == least):  # type: ignore[operator]
        return
    allowed = "a finite number"
    if least > -_FLOAT32_MAX:
        allowed += f" {'>' if exclusive else '>='} {least:g}"
    if most < _FLOAT32_MAX:
        allowed += f"{' and' if least > -_FLOAT32_MAX else ''} <= {most:g}"
    raise ConfigError(f"an optimizer's {name} must be {allowed}", value=value, allowed=allowed)
