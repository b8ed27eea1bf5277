"""The programs of DLRM, DCN-v2 and the factorization machine, with the weights that Keras's layers begin with.

They are the networks of :mod:`trainer.model.dlrm`, :mod:`trainer.model.dcn` and :mod:`trainer.model.fm`: the same variables in the same order, from
the same seeds. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.errors import ConfigError
from trainer.model.compiled.program import Activation, Buffer, Part, Program, ProgramBuilder, whole
from trainer.model.compiled.stateless_random import normal, uniform
from trainer.model.inputs import InputLayout
from trainer.model.layer_seeds import LayerSeeds
from trainer.model.task_heads import AnyHead, initial_logits
from trainer.options.config import TrainConfig

_ACTIVATIONS = {
    "relu": Activation.RELU,
    "leaky_relu": Activation.LEAKY_RELU,
    "silu": Activation.SILU,
    "gelu": Activation.GELU,
}


@dataclass(frozen=True, slots=True)
class Network:
    """A network as a program.

    Attributes:
        counted: the numbers of the variables, in the order of checkpoints, that are biases of counted hidden units.
    """

    program: Program
    counted: tuple[int, ...]


def network_of(layout: InputLayout, config: TrainConfig, head: AnyHead) -> Network:
    """The network of the options, and the weights of the linear part after its own. Raises :class:`ConfigError` as the networks in TensorFlow do."""
    if not config.deep:
        maker = _Maker(layout, config, head)
        return maker.finish(None, [])
    return {"dlrm": _dlrm, "dcn": _dcn, "fm": _fm}[config.network](layout, config, head)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A dense layer that is made; it may be applied later."""

    kernel: int
    bias: int
    units: int
    activation: Activation

    @property
    def variables(self) -> list[int]:
        return [self.kernel, self.bias] if self.bias >= 0 else [self.kernel]


@dataclass(frozen=True, slots=True)
class _Mlp:
    """Layers and the seeds of the dropout after each."""

    layers: list[_Layer]
    seeds: list[int]
    share: float
    width: int


@dataclass(frozen=True, slots=True)
class _Last:
    """The last layers: one, or an MLP and a layer of each label."""

    mlps: list[_Mlp]
    layers: list[_Layer]

    @property
    def variables(self) -> list[int]:
        layers = [*(layer for mlp in self.mlps for layer in mlp.layers), *self.layers]
        return [number for layer in layers for number in layer.variables]


class _Maker:
    """Makes the layers of one network in the order of their seeds."""

    def __init__(self, layout: InputLayout, config: TrainConfig, head: AnyHead) -> None:
        self._layout, self._config, self._head = layout, config, head
        self.builder = ProgramBuilder(layout.number_width)
        self._seeds = LayerSeeds(config.seed)
        self._drops: list[tuple[int, int]] = []

    def layer(self, units: int, width: int, activation: Activation, *, bias: bool = True) -> _Layer:
        limit = np.float32(math.sqrt(3.0 / max(1.0, (width + units) / 2.0)))
        drawn = uniform((self._seeds.next(), 0), width * units) * (limit - -limit) + -limit
        kernel = self.builder.variable(drawn.reshape(width, units))
        return _Layer(kernel, self.builder.variable(np.zeros(units)) if bias else -1, units, activation)

    def vector(self, width: int) -> int:
        return self.builder.variable(normal((self._seeds.next(), 0), width) * np.float32(width**-0.5))

    def mlp(self, sizes: Sequence[int], width: int, *, dropout: float = 0.0) -> _Mlp:
        widths = [width, *sizes]
        activation = _ACTIVATIONS[self._config.activation]
        layers = [self.layer(after, before, activation) for before, after in zip(widths, sizes, strict=False)]
        return _Mlp(layers, [self._seeds.next() for _ in sizes] if dropout else [], dropout, widths[-1])

    def last(self, width: int) -> _Last:
        biases = initial_logits(self._config, self._head)
        if not self._config.task_mlp:
            return _Last([], [self._last_layer(biases, width)])
        mlps = [self.mlp(self._config.task_mlp, width, dropout=self._config.dropout) for _ in self._head.each]
        at, layers = 0, []
        for mlp, (_, one) in zip(mlps, self._head.each, strict=True):
            layers.append(self._last_layer(biases[at : at + one.width], mlp.width))
            at += one.width
        return _Last(mlps, layers)

    def _last_layer(self, biases: Sequence[float], width: int) -> _Layer:
        units = len(biases)
        made = self.layer(units, width, Activation.NONE, bias=False)
        return _Layer(made.kernel, self._output_bias(biases), units, Activation.NONE)

    def _output_bias(self, biases: Sequence[float]) -> int:
        """The bias of the logits, which the linear part has where there is one."""
        return -1 if self._config.linear else self.builder.variable(np.array(biases, np.float32))

    def pair_weights(self, pairs: int) -> _Layer:
        """The weights of the pairs of a factorization machine."""
        biases = initial_logits(self._config, self._head)
        kernel = self.builder.variable(np.ones((pairs, len(biases))))
        return _Layer(kernel, self._output_bias(biases), len(biases), Activation.NONE)

    def apply_layer(self, layer: _Layer, source: Part, target: Part | None = None) -> Buffer:
        into = whole(self.builder.buffer(layer.units)) if target is None else target
        self.builder.dense(source, into, layer.kernel, layer.bias, layer.activation)
        return into.buffer

    def apply(self, mlp: _Mlp, hidden: Buffer) -> Buffer:
        for k, layer in enumerate(mlp.layers):
            hidden = self.apply_layer(layer, whole(hidden))
            if mlp.seeds:
                hidden = self.builder.drop(hidden, mlp.seeds[k], mlp.share)
        return hidden

    def apply_last(self, last: _Last, hidden: Buffer) -> Buffer:
        if not last.mlps:
            return self.apply_layer(last.layers[0], whole(hidden))
        logits, at = self.builder.buffer(sum(layer.units for layer in last.layers)), 0
        for mlp, layer in zip(last.mlps, last.layers, strict=True):
            self.apply_layer(layer, whole(self.apply(mlp, hidden)), Part(logits, at, layer.units))
            at += layer.units
        return logits

    def embedded(self, projections: dict[int, _Layer], vectors: Buffer) -> None:
        """Write the activations of all inputs into the first columns of ``vectors``, those with a projection projected."""
        widths = [feature.width for feature in self._layout.features]
        if not projections:
            if widths:
                self.builder.take(0, Part(vectors, 0, sum(widths)))
            return
        column = 0
        for f, width in enumerate(widths):
            target = Part(vectors, f * self._config.dim, self._config.dim)
            if f in projections:
                own = self.builder.buffer(width)
                self.builder.take(column, whole(own))
                self.apply_layer(projections[f], whole(own), target)
            else:
                self.builder.take(column, target)
            column += width

    def projections(self) -> dict[int, _Layer]:
        """The layers of inputs of another width than ``dim``."""
        dim = self._config.dim
        widths = [feature.width for feature in self._layout.features]
        return {
            f: self.layer(dim, width, Activation.NONE, bias=False) for f, width in enumerate(widths) if width != dim
        }

    def finish(self, logits: Buffer | None, order: Sequence[int], counted: Sequence[_Mlp] = ()) -> Network:
        """The program, with the variables of the linear part after those in ``order``."""
        linear: list[int] = []
        if self._config.linear:
            start = np.array(initial_logits(self._config, self._head), np.float32)
            linear = [
                self.builder.variable(start),
                self.builder.variable(np.zeros((self._layout.number_width, self._head.width))),
            ]
        every = [*order, *linear]
        taken = sum(feature.width for feature in self._layout.features) if self._config.deep else 0
        place = {number: k for k, number in enumerate(every)}
        is_counted = self._config.activation == "relu"
        biases = [place[layer.bias] for mlp in counted for layer in mlp.layers] if is_counted else []
        return Network(self.builder.finish(logits, taken, every), tuple(biases))


def _variables(layers: Sequence[_Layer]) -> list[int]:
    return [number for layer in layers for number in layer.variables]


def _dlrm(layout: InputLayout, config: TrainConfig, head: AnyHead) -> Network:
    if config.task_mlp and not config.top_mlp:
        raise ConfigError(
            "a DLRM with task_mlp must have top_mlp", where="top_mlp", value=[], next_step="give top_mlp a width"
        )
    make, dim, inputs = _Maker(layout, config, head), config.dim, len(layout.features)
    projections = make.projections()
    bottom = make.mlp([*config.bottom_mlp, dim], layout.number_width) if layout.dense else None
    constant = make.vector(dim) if config.dense_bias and not layout.dense else -1
    beside = bottom is not None or constant >= 0
    count = inputs + beside
    pairs = count * (count - 1) // 2
    top = make.mlp(config.top_mlp, (pairs + (dim if beside else 0)) or dim, dropout=config.dropout)
    last = make.last(top.width)
    vectors = make.builder.buffer(count * dim)
    make.embedded(projections, vectors)
    own = Part(vectors, inputs * dim, dim)
    hidden = vectors
    if pairs:
        hidden = make.builder.buffer(pairs + (dim if beside else 0))
    if bottom is not None:
        found = make.apply(bottom, make.builder.number_buffer)
        make.builder.copy(whole(found), own)
        if pairs:
            make.builder.copy(whole(found), Part(hidden, 0, dim))
    elif constant >= 0:
        for target in (own, Part(hidden, 0, dim))[: 2 if pairs else 1]:
            make.builder.vector(constant, target)
    if pairs:
        make.builder.pairs(vectors, dim, Part(hidden, hidden.width - pairs, pairs))
    logits = make.apply_last(last, make.apply(top, hidden))
    order = [
        *_variables([*projections.values(), *(bottom.layers if bottom else ())]),
        *([constant] if constant >= 0 else ()),
        *_variables(top.layers),
        *last.variables,
    ]
    return make.finish(logits, order, [*([bottom] if bottom else []), top, *last.mlps])


def _dcn(layout: InputLayout, config: TrainConfig, head: AnyHead) -> Network:
    make, embedded = _Maker(layout, config, head), sum(feature.width for feature in layout.features)
    width = embedded + layout.number_width
    is_parallel = config.cross_structure == "parallel"
    steps: list[list[_Layer]] = []
    for _ in range(config.cross_layers):
        is_low = 0 < config.cross_rank < width
        low = [make.layer(config.cross_rank, width, Activation.NONE, bias=False)] if is_low else []
        steps.append([*low, make.layer(width, config.cross_rank if is_low else width, Activation.NONE)])
    deep = make.mlp(config.top_mlp, width, dropout=config.dropout)
    last = make.last(deep.width + (width if is_parallel else 0))
    first = make.builder.buffer(width)
    if embedded:
        make.builder.take(0, Part(first, 0, embedded))
    if layout.number_width:
        make.builder.copy(whole(make.builder.number_buffer), Part(first, embedded, layout.number_width))
    crossed = first
    for step in steps:
        product = crossed
        for layer in step:
            product = make.apply_layer(layer, whole(product))
        crossed = make.builder.cross(first, product, crossed)
    if is_parallel:
        beside = make.apply(deep, first)
        hidden = make.builder.buffer(width + deep.width)
        make.builder.copy(whole(crossed), Part(hidden, 0, width))
        make.builder.copy(whole(beside), Part(hidden, width, deep.width))
    else:
        hidden = make.apply(deep, crossed)
    logits = make.apply_last(last, hidden)
    order = [*_variables([*(layer for step in steps for layer in step), *deep.layers]), *last.variables]
    return make.finish(logits, order, [deep, *last.mlps])


def _fm(layout: InputLayout, config: TrainConfig, head: AnyHead) -> Network:
    if config.task_mlp:
        raise ConfigError("task_mlp must be absent with network fm, which has no hidden layers", where="task_mlp", value=str(config.task_mlp),
                          next_step="leave it out, or choose network dlrm or dcn")  # fmt: skip
    make, dim, inputs = _Maker(layout, config, head), config.dim, len(layout.features)
    projections = make.projections()
    numbers = [make.vector(dim) for _ in range(layout.number_width)]
    constant = make.vector(dim)
    count = inputs + len(numbers) + 1
    last = make.pair_weights(count * (count - 1) // 2)
    vectors = make.builder.buffer(count * dim)
    make.embedded(projections, vectors)
    for k, own in enumerate(numbers):
        make.builder.times_vector(k, own, Part(vectors, (inputs + k) * dim, dim))
    make.builder.vector(constant, Part(vectors, (count - 1) * dim, dim))
    products = make.builder.buffer(count * (count - 1) // 2)
    make.builder.pairs(vectors, dim, whole(products))
    logits = make.apply_layer(last, whole(products))
    order = [*_variables(list(projections.values())), *numbers, constant, *last.variables]
    return make.finish(logits, order)
