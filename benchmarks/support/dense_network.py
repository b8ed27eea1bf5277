"""The dense part of a step in numpy: the multilayer perceptrons of MLPerf's DLRM, forwards and backwards, without its interaction."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

#: The units of the layers of the bottom and of the top network, inputs first.
_BOTTOM, _TOP = (13, 512, 256, 128), (479, 1024, 1024, 512, 256, 1)
_STEP_SIZE = 1e-3


class DenseNetwork:
    """The networks for ``events`` events a step."""

    def __init__(self, events: int) -> None:
        rng = np.random.default_rng(5)
        self._layers = [
            [rng.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5) for shape in pairwise(units)]
            for units in (_BOTTOM, _TOP)
        ]
        self._dense = rng.standard_normal((events, _BOTTOM[0]), np.float32)

    def gradients(self, activations: Array) -> Array:
        """Train on the activations' first columns; returns gradients of the activations, float32 of their shape."""
        self._train(0, self._dense)
        inputs = np.resize(activations[:, : _TOP[0]], (len(activations), _TOP[0]))
        of_inputs = self._train(1, inputs)
        found = np.empty_like(activations)
        for start in range(0, activations.shape[1], _TOP[0]):
            columns = found[:, start : start + _TOP[0]]
            columns[:] = of_inputs[:, : columns.shape[1]]
        return found

    def _train(self, network: int, inputs: Array) -> Array:
        """One step of gradient descent; returns the gradients of the inputs."""
        layers, outputs = self._layers[network], [inputs]
        for layer in layers:
            outputs.append(np.maximum(outputs[-1] @ layer, 0))
        gradient = outputs[-1] / np.float32(outputs[-1].size)
        for k in reversed(range(len(layers))):
            gradient *= outputs[k + 1] > 0
            below = gradient @ layers[k].T
            layers[k] -= np.float32(_STEP_SIZE) * (outputs[k].T @ gradient)
            gradient = below
        return gradient


def dense_secs(events: int, repeats: int = 5) -> float:
    """The least seconds of a step on this machine, on the threads that numpy has."""
    network, activations = DenseNetwork(events), np.ones((events, _TOP[0]), np.float32)
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        network.gradients(activations)
        found.append(time.perf_counter() - began)
    return min(found)
