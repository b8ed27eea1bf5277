"""Convert the optimizers of ``tf.tpu.experimental.embedding`` to light specs, and back.

One table says which class and which argument of TensorFlow each field of a spec is; both directions read it.
"""

from __future__ import annotations

from typing import Any

from trainer.errors import UnsupportedSetting
from trainer.tables import optimizers as specs
from trainer.tables.optimizers import Optimizer, OptimizerSettings

#: Specs of the classes that TensorFlow has under the same name.
_KINDS: tuple[Any, ...] = (specs.SGD, specs.Adagrad, specs.AdagradMomentum, specs.Adam, specs.FTRL)
#: Fields that TensorFlow calls otherwise.
_THEIR_NAME = {"initial_accumulator": "initial_accumulator_value"}
#: The only field that TensorFlow does not have.
OWN_FIELD = "admit_after"
#: TensorFlow's constructors take both as ``clipvalue``; its objects have them under these names.
_GRADIENT_LIMITS = ("clip_gradient_min", "clip_gradient_max")
_FLAGS = ("use_gradient_accumulation", "multiply_weight_decay_factor_by_learning_rate",
          "low_dimensional_packing_status", "use_nesterov", "lazy_adam", "sum_inside_sqrt",
          "multiply_linear_by_learning_rate", "allow_zero_accumulator")  # fmt: skip


def optimizer_from_tensorflow(optimizer: Any, *, table: str) -> Optimizer:
    """The spec of an optimizer of TensorFlow. Raises :class:`UnsupportedSetting` for one, or a setting, that specs do not have."""
    import tensorflow as tf

    embedding = tf.tpu.experimental.embedding
    spec = next((kind for kind in _KINDS if type(optimizer) is getattr(embedding, kind.__name__)), None)
    if spec is None:
        raise refused("optimizer", type(optimizer).__name__, ", ".join(kind.__name__ for kind in _KINDS), where=table)
    if optimizer.slot_variable_creation_fn is not None:
        raise refused("slot_variable_creation_fn", optimizer.slot_variable_creation_fn, "None", where=table)
    values = {name: getattr(optimizer, _THEIR_NAME.get(name, name)) for name in field_names(spec) if name != OWN_FIELD}
    return spec(**{name: _plain(name, value) for name, value in values.items()})  # type: ignore[no-any-return]


def optimizer_to_tensorflow(optimizer: Optimizer, *, table: str) -> Any:
    """TensorFlow's optimizer. Raises :class:`UnsupportedSetting` for one, or a setting, that TensorFlow does not have."""
    import tensorflow as tf

    kind = type(optimizer)
    if kind not in _KINDS:
        raise refused("optimizer", kind.__name__, ", ".join(kind.__name__ for kind in _KINDS), where=table,
                      next_step="choose an optimizer that TensorFlow has, or the cpu engine")  # fmt: skip
    values = {name: getattr(optimizer, name) for name in field_names(kind)}
    if values.pop(OWN_FIELD) != 1:
        raise refused(
            OWN_FIELD,
            optimizer.admit_after,
            "1",
            where=table,
            next_step="leave admit_after out, or choose the cpu engine",
        )
    limits = tuple(values.pop(name) for name in _GRADIENT_LIMITS)
    values["clipvalue"] = None if limits == (None, None) else limits
    # TPUEmbeddingV2 takes False for a setting of weight decay, which it does not have.
    values["multiply_weight_decay_factor_by_learning_rate"] = (
        values["multiply_weight_decay_factor_by_learning_rate"] or None
    )
    arguments = {_THEIR_NAME.get(name, name): value for name, value in values.items()}
    try:
        return getattr(tf.tpu.experimental.embedding, kind.__name__)(**arguments)
    except ValueError as error:
        raise refused("optimizer", optimizer, "one that TensorFlow accepts", where=table,
                      next_step=str(error)) from error  # fmt: skip


def field_names(kind: type[OptimizerSettings]) -> tuple[str, ...]:
    """Names of all fields of a spec's class."""
    return tuple(kind.__dataclass_fields__)


def refused(setting: str, value: object, allowed: str, *, where: str, next_step: str = "") -> UnsupportedSetting:
    """The error for a setting that one side has and the other has not."""
    return UnsupportedSetting(
        f"{setting} must be {allowed}",
        where=f"embedding configuration, {where}",
        value=str(value),
        allowed=allowed,
        next_step=next_step or "change the setting, or train with TPUEmbedding itself",
    )


def _plain(name: str, value: Any) -> Any:
    """A value of TensorFlow's object as the spec takes it."""
    if name in _FLAGS:
        return bool(value)
    return value if value is None or callable(value) else float(value)
