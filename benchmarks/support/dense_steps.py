"""One dense train step of DLRM or DCN-v2 for each system, as a process: ``python -m benchmarks.support.dense_steps SYSTEM``.

The first line of the input is a :class:`DenseStepCase`; each further one the seconds of a round, answered by the milliseconds of a step. A step is
forward, gradients by activations and weights, and Adam. It imports Headrace for its own sides alone: the others run in environments of their own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_NUMBERS = 13
_CROSS_LAYERS = 2


@dataclass(frozen=True, slots=True)
class DenseStepCase:
    """The sizes of a step."""

    network: str
    inputs: int
    dim: int
    batch_rows: int
    top_mlp: tuple[int, ...] = (64, 32)
    bottom_mlp: tuple[int, ...] = (64,)
    threads: int = 1

    def __str__(self) -> str:
        return f"{self.network}, {self.inputs} inputs x {self.dim}, {self.batch_rows} events, top {'-'.join(map(str, self.top_mlp))}"


def inputs_of(case: DenseStepCase) -> tuple[Array, Array, Array]:
    """Activations, numbers and labels, the same for all systems."""
    draw = np.random.default_rng(0)
    activations = draw.normal(size=(case.batch_rows, case.inputs * case.dim)).astype(np.float32)
    numbers = draw.normal(size=(case.batch_rows, _NUMBERS)).astype(np.float32)
    return activations, numbers, (draw.random(case.batch_rows) < 0.1).astype(np.float32)


def ours(case: DenseStepCase, *, compiled: bool) -> Callable[[], object]:
    """The step of Headrace, compiled or in TensorFlow."""
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.options.config import TrainConfig
    from transforms.types import Dense, DType

    items = [TypedInput(f"id_{k}", Dense(DType.INT64, 100)) for k in range(case.inputs)]
    items += [TypedInput(f"number_{k}", Dense(DType.FLOAT32)) for k in range(_NUMBERS)]
    config = TrainConfig("run", network=case.network, dim=case.dim, batch_rows=case.batch_rows, top_mlp=case.top_mlp,
                         bottom_mlp=case.bottom_mlp, threads=case.threads, cross_layers=_CROSS_LAYERS)  # fmt: skip
    layout = lay_out(items, config)
    model: Any
    if compiled:
        from trainer.model.compiled.compiled_dense import CompiledDense

        model = CompiledDense(layout, config)
    else:
        from trainer.run.weights.run_state import build_in_tensorflow

        model = build_in_tensorflow(layout, config)
    activations, numbers, labels = inputs_of(case)
    nothing, weights = np.zeros((case.batch_rows, 0), np.float32), np.ones(case.batch_rows, np.float32)
    return lambda: model.step(activations, nothing, numbers, labels, weights)


def _sizes(case: DenseStepCase) -> tuple[list[int], list[int]]:
    """The widths of the bottom and of the top MLP."""
    if case.network == "dcn":
        return [], [case.inputs * case.dim + _NUMBERS, *case.top_mlp, 1]
    pairs = (case.inputs + 1) * case.inputs // 2
    return [_NUMBERS, *case.bottom_mlp, case.dim], [case.dim + pairs, *case.top_mlp, 1]


def torch_step(case: DenseStepCase) -> Callable[[], object]:
    """The step of PyTorch, with its fused Adam."""
    import torch

    torch.set_num_threads(case.threads)
    bottom_sizes, top_sizes = _sizes(case)

    def mlp(sizes: Sequence[int]) -> Any:
        layers: list[Any] = []
        for before, after in pairwise(sizes):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers)

    bottom, top = mlp(bottom_sizes), mlp(top_sizes)[:-1]
    crosses = [
        torch.nn.Linear(top_sizes[0], top_sizes[0]) for _ in range(_CROSS_LAYERS if case.network == "dcn" else 0)
    ]
    weights = [one for module in (bottom, top, *crosses) for one in module.parameters()]
    optimizer = torch.optim.Adam(weights, lr=0.003, fused=True)
    vectors, numbers, labels = (torch.from_numpy(one) for one in inputs_of(case))
    rows, columns = torch.tril_indices(case.inputs + 1, case.inputs + 1, -1)
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step() -> object:
        activations = vectors.clone().requires_grad_()
        if case.network == "dcn":
            first = hidden = torch.cat([activations, numbers], 1)
            for cross in crosses:
                hidden = first * cross(hidden) + hidden
        else:
            own = bottom(numbers)
            stacked = torch.cat([activations, own], 1).view(case.batch_rows, -1, case.dim)
            products = torch.bmm(stacked, stacked.transpose(1, 2))
            hidden = torch.cat([own, products[:, rows, columns]], 1)
        loss = loss_of(top(hidden)[:, 0], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return activations.grad.numpy()  # type: ignore[union-attr]

    return step


def jax_step(case: DenseStepCase) -> Callable[[], object]:
    """The step of JAX, compiled by XLA."""
    import jax
    import jax.numpy as jnp

    bottom_sizes, top_sizes = _sizes(case)
    draw = np.random.default_rng(1)

    def layers(sizes: Sequence[int]) -> list[Any]:
        return [
            (jnp.array(draw.normal(size=(a, b)).astype(np.float32) / a**0.5), jnp.zeros(b)) for a, b in pairwise(sizes)
        ]

    width, count = top_sizes[0], _CROSS_LAYERS if case.network == "dcn" else 0
    crosses = [layer for _ in range(count) for layer in layers([width, width])]
    weights = {"bottom": layers(bottom_sizes), "top": layers(top_sizes), "cross": crosses}
    rows, columns = np.tril_indices(case.inputs + 1, -1)

    def loss_of(weights: Any, activations: Any, numbers: Any, labels: Any) -> Any:
        if case.network == "dcn":
            first = hidden = jnp.concatenate([activations, numbers], 1)
            for kernel, bias in weights["cross"]:
                hidden = first * (hidden @ kernel + bias) + hidden
        else:
            own = numbers
            for kernel, bias in weights["bottom"]:
                own = jax.nn.relu(own @ kernel + bias)
            stacked = jnp.concatenate([activations, own], 1).reshape(case.batch_rows, -1, case.dim)
            products = jnp.einsum("bid,bjd->bij", stacked, stacked)
            hidden = jnp.concatenate([own, products[:, rows, columns]], 1)
        *before, last = weights["top"]
        for kernel, bias in before:
            hidden = jax.nn.relu(hidden @ kernel + bias)
        logits = (hidden @ last[0] + last[1])[:, 0]
        return jnp.mean(jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits))))

    def update(state: Any, activations: Any, numbers: Any, labels: Any) -> Any:
        weights, means, squares, number = state
        by_weights, by_activations = jax.grad(loss_of, argnums=(0, 1))(weights, activations, numbers, labels)
        means = jax.tree.map(lambda m, g: m + (g - m) * 0.1, means, by_weights)
        squares = jax.tree.map(lambda v, g: v + (g * g - v) * 0.001, squares, by_weights)
        rate = 0.003 * jnp.sqrt(1 - 0.999 ** (number + 1)) / (1 - 0.9 ** (number + 1))
        weights = jax.tree.map(lambda w, m, v: w - m * rate / (jnp.sqrt(v) + 1e-7), weights, means, squares)
        return (weights, means, squares, number + 1), by_activations

    compiled = jax.jit(update, donate_argnums=0)
    zeros = jax.tree.map(jnp.zeros_like, weights)
    state = (weights, zeros, jax.tree.map(jnp.zeros_like, weights), jnp.zeros(()))
    arrays = inputs_of(case)

    def step() -> object:
        nonlocal state
        state, found = compiled(state, *arrays)
        return np.asarray(found)

    return step


SYSTEMS: dict[str, Callable[[DenseStepCase], Callable[[], object]]] = {
    "compiled": lambda case: ours(case, compiled=True),
    "tensorflow": lambda case: ours(case, compiled=False),
    "torch": torch_step,
    "jax": jax_step,
}


def main() -> None:
    """Answer lines until the input ends."""
    case = DenseStepCase(**json.loads(sys.stdin.readline()))
    run = SYSTEMS[sys.argv[1]](case)
    for _ in range(5):
        run()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        secs, steps = float(json.loads(line)), 0
        began, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < secs:
            run()
            steps += 1
        answer = [(time.perf_counter() - began) / steps * 1e3, (time.process_time() - cpu) / steps * 1e3]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
