"""Modules of towers (Luo et al., "Disaggregated Multi-Tower", MLSys 2024, section 3.2): layers that compress the inputs of each tower.

A tower of DLRM projects its inputs, each by itself and all together; a tower of DCN-v2 crosses its inputs, and projects the result. So fewer columns
leave a tower, and features of one tower of DCN-v2 interact before those of different towers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.model.cross import CrossLayers
from trainer.model.inputs import InputLayout
from trainer.model.mlp import SeededLayers
from trainer.model.tower_shapes import TowerShape, TowerShapes, tower_shapes
from trainer.options.config import TrainConfig
from trainer.options.towers import COMBINATION

#: The cross layers of a tower of DCN-v2.
_CROSS_LAYERS = 1


class ProjectionTower:
    """The module of a tower of DLRM: of F inputs of N columns, c vectors of D columns each, and p vectors of D columns.

    A matrix N x cD, which all inputs of the tower share, projects each of them; the p vectors are linear in all F x N columns. So the
    operations are those of the paper's tables 4 and 5 (``benchmarks/support/dense_shapes.py``).

    Attributes:
        layers: the dense layers; none if the tower passes its one input on.
    """

    def __init__(self, made: SeededLayers, shape: TowerShape, columns: int, dim: int) -> None:
        self._inputs, self._columns, self._shape = len(shape.features), columns, shape
        self.layers: list[Any] = []
        if shape.passes:
            return
        if shape.combinations:
            self.layers.append(made.dense(shape.combinations // self._inputs * dim, columns, None, bias=False))
        if shape.projections:
            self.layers.append(made.dense(shape.projections * dim, self._inputs * columns, None, bias=False))

    def __call__(self, inputs: Any) -> Any:
        """[events, vectors x D] from [events, F x N]."""
        if self._shape.passes:
            return tf.identity(inputs)
        outputs, layers = [], iter(self.layers)
        if self._shape.combinations:
            each = next(layers)(tf.reshape(inputs, [-1, self._columns]))
            outputs.append(tf.reshape(each, [-1, self._inputs * each.shape[1]]))
        if self._shape.projections:
            outputs.append(next(layers)(inputs))
        return tf.concat(outputs, axis=1)


class CombinationTower:
    """A module of DLRM that mixes features: of F inputs of N columns, ``combinations`` and ``projections`` vectors of D columns.

    The first are linear combinations of the inputs, whose width a matrix N x D projects; the others are linear in all F x N columns.

    Attributes:
        layers: the dense layers.
    """

    def __init__(self, made: SeededLayers, shape: TowerShape, columns: int, dim: int) -> None:
        self._inputs, self._columns, self._dim = len(shape.features), columns, dim
        self._combines, self._projects = bool(shape.combinations), bool(shape.projections)
        self.layers: list[Any] = []
        if self._combines:
            self.layers.append(made.dense(dim, columns, None, bias=False))
            self.layers.append(made.dense(shape.combinations, self._inputs, None, bias=False))
        if self._projects:
            self.layers.append(made.dense(shape.projections * dim, self._inputs * columns, None, bias=False))

    def __call__(self, inputs: Any) -> Any:
        """[events, vectors x D] from [events, F x N]."""
        outputs = []
        if self._combines:
            width, combine, *_ = self.layers
            projected = width(tf.reshape(inputs, [-1, self._inputs, self._columns]))
            combined = combine(tf.transpose(projected, [0, 2, 1]))
            outputs.append(tf.reshape(tf.transpose(combined, [0, 2, 1]), [-1, combine.units * self._dim]))
        if self._projects:
            outputs.append(self.layers[-1](inputs))
        return tf.concat(outputs, axis=1)


class CrossTower:
    """The module of a tower of DCN-v2: one cross layer over its inputs, and a projection to the width of its outputs.

    Attributes:
        layers: the dense layers.
    """

    def __init__(self, made: SeededLayers, shape: TowerShape, rank: int) -> None:
        self._cross = CrossLayers(made, _CROSS_LAYERS, shape.columns, rank)
        self._project = made.dense(shape.width, shape.columns, None, bias=False)
        self.layers = [*self._cross.layers, self._project]

    def __call__(self, inputs: Any) -> Any:
        """[events, width] from [events, columns]."""
        return self._project(self._cross(inputs))


class TowerModules:
    """The modules of all towers of a network.

    Attributes:
        shapes: what each takes and gives.
        modules: one for each tower.
        width: the columns of all outputs.
    """

    def __init__(
        self,
        shapes: TowerShapes,
        modules: Sequence[ProjectionTower | CombinationTower | CrossTower],
        widths: Sequence[int],
    ) -> None:
        self.shapes, self.modules, self._widths = shapes, tuple(modules), list(widths)
        self.width = sum(one.width for one in shapes.towers)

    @property
    def layers(self) -> list[Any]:
        """The dense layers of all modules."""
        return [layer for one in self.modules for layer in one.layers]

    def __call__(self, activations: Any) -> Any:
        """The outputs of all towers, tower after tower, [events, width]; ``activations``: of all inputs, side by side in order."""
        parts = tf.split(activations, self._widths, axis=1)
        inputs = [tf.concat([parts[f] for f in one.features], axis=1) for one in self.shapes.towers]
        return tf.concat([module(own) for module, own in zip(self.modules, inputs, strict=True)], axis=1)


def dlrm_towers(layout: InputLayout, config: TrainConfig, made: SeededLayers) -> TowerModules | None:
    """The towers of a DLRM over inputs of ``config.dim`` columns each, or None. Raises as :func:`tower_shapes`."""
    shapes = tower_shapes(layout.features, config)
    if shapes is None:
        return None
    assert config.tower_modules is not None
    kind = CombinationTower if config.tower_modules.module == COMBINATION else ProjectionTower
    modules = [kind(made, one, config.dim, shapes.dim) for one in shapes.towers]
    return TowerModules(shapes, modules, [config.dim] * len(layout.features))


def dcn_towers(layout: InputLayout, config: TrainConfig, made: SeededLayers) -> TowerModules | None:
    """The towers of a DCN-v2, or None. Raises as :func:`tower_shapes`."""
    shapes = tower_shapes(layout.features, config)
    if shapes is None:
        return None
    assert config.tower_modules is not None
    rank = config.tower_modules.rank or config.cross_rank
    modules = [CrossTower(made, one, rank) for one in shapes.towers]
    return TowerModules(shapes, modules, [one.width for one in layout.features])
