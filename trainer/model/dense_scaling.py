"""Dense numbers on one scale: counts in the thousands and shares below one, as the same model can learn from both.

Standardised by mean and deviation of the first data; a number whose distribution is skewed goes through a signed
logarithm first. The statistics are options of the run, so that a checkpoint holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.config import DenseScale
from trainer.errors import ConfigError
from trainer.model.inputs import InputLayout, width_of
from transforms.errors import nearest

Array = np.ndarray[Any, np.dtype[Any]]

#: Deviations from the mean beyond which a value counts as this far: one outlier must not decide a prediction.
MOST_DEVIATIONS = 8.0
#: Above this skewness a number goes through a logarithm. An exponential distribution has 2.
_SKEWED = 2.0


def scaling_of(layout: InputLayout, dense: Array) -> dict[str, tuple[DenseScale, ...]]:
    """The scales of every dense input, from float32 [events, width of the dense inputs]. Pure."""
    scales, at = {}, 0
    for item in layout.dense:
        width = width_of(item.type)
        scales[item.name] = tuple(_scale(dense[:, column].astype(np.float64)) for column in range(at, at + width))
        at += width
    return scales


def _scale(values: Array) -> DenseScale:
    mean, deviation = _moments(values)
    if deviation and abs(float(np.mean(((values - mean) / deviation) ** 3))) > _SKEWED:
        mean, deviation = _moments(np.sign(values) * np.log1p(np.abs(values)))
        return "log", mean, deviation or 1.0
    return "plain", mean, deviation or 1.0


def _moments(values: Array) -> tuple[float, float]:
    if not len(values):
        return 0.0, 0.0
    mean, deviation = float(values.mean()), float(values.std())
    # What is constant but for rounding has no scale of its own.
    return mean, deviation if deviation > 1e-6 * abs(mean) else 0.0


class Scaling:
    """``dense_scaling`` of a configuration over the dense columns of a layout. Raises :class:`ConfigError` if they do not fit."""

    def __init__(self, layout: InputLayout, scales: Mapping[str, tuple[DenseScale, ...]]) -> None:
        names = [item.name for item in layout.dense]
        for name in scales:
            if name not in names:
                raise ConfigError("an option is about an input that is not dense", where="dense_scaling", value=name,
                                  allowed=nearest(name, names))  # fmt: skip
        columns: list[DenseScale] = []
        for item in layout.dense:
            found = scales.get(item.name, (("plain", 0.0, 1.0),) * width_of(item.type))
            if len(found) != width_of(item.type):
                raise ConfigError("dense_scaling must have one scale for each number of an input, got another count",
                                  where=item.name, value=len(found), allowed=str(width_of(item.type)))  # fmt: skip
            columns += found
        self._active = bool(scales)
        self._log = np.array([kind == "log" for kind, _, _ in columns], bool)
        self._mean = np.array([mean for _, mean, _ in columns], np.float32)
        self._deviation = np.array([deviation for _, _, deviation in columns], np.float32)

    def scaled(self, dense: Any) -> Any:
        """A float32 tensor [rows, columns], scaled; as it is where the run has no scales."""
        if not self._active:
            return dense
        import tensorflow as tf

        if self._log.any():
            dense = tf.where(self._log, tf.sign(dense) * tf.math.log1p(tf.abs(dense)), dense)
        return tf.clip_by_value((dense - self._mean) / self._deviation, -MOST_DEVIATIONS, MOST_DEVIATIONS)
