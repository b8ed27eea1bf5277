"""Scale dense numbers by mean and deviation, after a signed logarithm if their distribution is skewed.

The statistics come from the first data and are options of the run, so that a checkpoint holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.errors import ConfigError
from trainer.model.inputs import InputLayout, width_of
from trainer.options.config import DenseScale
from transforms.arrays import Array
from transforms.errors import nearest

#: Values are clipped at this many deviations from the mean, so that one outlier cannot decide a prediction.
MOST_DEVIATIONS = 8.0
#: Above this skewness the logarithm of a number is used. An exponential distribution has 2.
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
    # A number that is constant except for rounding has no scale.
    return mean, deviation if deviation > 1e-6 * abs(mean) else 0.0


class Scaling:
    """``dense_scaling`` of a configuration over the dense columns of a layout. Raises :class:`ConfigError` if they do not fit."""

    def __init__(self, layout: InputLayout, scales: Mapping[str, tuple[DenseScale, ...]]) -> None:
        names = [item.name for item in layout.dense]
        for name in scales:
            if name not in names:
                raise ConfigError(
                    "an option must name a dense input", where="dense_scaling", value=name, allowed=nearest(name, names)
                )
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

    @property
    def columns(self) -> tuple[Array, Array, Array]:
        """By column, whether its logarithm is taken, its mean and its deviation; both are empty if the run has no scales."""
        if self._active:
            return self._log, self._mean, self._deviation
        return self._log, self._mean[:0], self._deviation[:0]

    def scaled(self, dense: Any) -> Any:
        """Scale a float32 tensor [rows, columns]; unchanged if the run has no scales."""
        if not self._active:
            return dense
        import tensorflow as tf

        if self._log.any():
            dense = tf.where(self._log, tf.sign(dense) * tf.math.log1p(tf.abs(dense)), dense)
        return tf.clip_by_value((dense - self._mean) / self._deviation, -MOST_DEVIATIONS, MOST_DEVIATIONS)
