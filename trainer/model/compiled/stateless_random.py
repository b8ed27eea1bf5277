"""The stateless random numbers of TensorFlow, so that a model begins with the same weights where TensorFlow is not loaded.

Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), in TensorFlow's order of key and counter.
A test compares them with TensorFlow's. Pure.
"""

from __future__ import annotations

import math

import numpy as np

from transforms.arrays import Array

#: Keras draws from seeds of int64 by their rest.
_SEEDS = 2**31 - 2
_ROUNDS = 10
_FACTORS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
#: The key by which TensorFlow mixes a seed.
_MIXING_KEY = np.uint32(0x3EC8F720), np.uint32(0x02461E29)
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniform(seed: tuple[int, int], count: int) -> Array:
    """``count`` numbers in [0, 1), float32: ``tf.random.stateless_uniform`` of the seed as Keras gives it."""
    mantissas = (_words(seed, count) & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)
    return mantissas.view(np.float32) - np.float32(1)


def normal(seed: tuple[int, int], count: int) -> Array:
    """``count`` numbers of the standard normal distribution, float32, by the method of Box and Muller; within rounding those of TensorFlow."""
    pairs = uniform(seed, count + count % 2).reshape(-1, 2)
    length = np.sqrt(np.float32(-2) * np.log(np.maximum(pairs[:, 0], np.float32(1e-7))))
    angle = np.float32(2 * math.pi) * pairs[:, 1]
    return np.stack([np.sin(angle) * length, np.cos(angle) * length], axis=1).astype(np.float32).ravel()[:count]


def _words(seed: tuple[int, int], count: int) -> Array:
    """``count`` random uint32."""
    first, second = (np.uint64(one % _SEEDS) for one in seed)
    mixed = _philox([np.full(1, word) for word in (first, 0, second, 0)], _MIXING_KEY)
    key = np.uint32(mixed[0, 0]), np.uint32(mixed[0, 1])
    groups = np.arange(-(-count // 4), dtype=np.uint64)
    counter = [groups & _LOW, groups >> _HIGH, *(np.full(len(groups), mixed[0, word], np.uint64) for word in (2, 3))]
    return _philox(counter, key).ravel()[:count]


def _philox(counter: list[Array], key: tuple[np.uint32, np.uint32]) -> Array:
    """The random words of some counters, uint32 [counters, 4]."""
    one, two, three, four = (np.asarray(word, np.uint64) for word in counter)
    left, right = int(key[0]), int(key[1])
    for _ in range(_ROUNDS):
        low, high = one * _FACTORS[0], three * _FACTORS[1]
        one, two, three, four = (
            (high >> _HIGH) ^ two ^ np.uint64(left),
            high & _LOW,
            (low >> _HIGH) ^ four ^ np.uint64(right),
            low & _LOW,
        )
        left, right = (left + int(_KEY_STEPS[0])) & 0xFFFFFFFF, (right + int(_KEY_STEPS[1])) & 0xFFFFFFFF
    return np.stack([one, two, three, four], axis=1).astype(np.uint32)
