"""The shapes of the modules of a model's towers, by the options: which inputs each takes, and how many columns it gives.

A module of DLRM gives ``combinations x F + projections`` vectors of ``dim`` columns for a tower of F inputs: the paper's c, p and D. One of
DCN-v2 gives the columns of its inputs over the ratio, or a number of columns that is equal in all towers. See :mod:`trainer.model.tower_modules`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig
from trainer.options.towers import PROJECTION, TowerOptions
from trainer.tables.routes.towers.placement import features_of_towers
from trainer.tables.spec import FeatureSpec

_WHERE = "tower_modules"
#: The ratio of DLRM's modules where the options say neither a ratio nor a shape: the paper's D = 64 of N = 128.
_HALF = 2.0


@dataclass(frozen=True, slots=True)
class TowerShape:
    """The module of one tower.

    Attributes:
        features: the positions of its inputs among the embedded inputs.
        columns: of the activations of its inputs.
        combinations, projections: the vectors of a DLRM's module; 0 for DCN-v2.
        width: the columns of its outputs.
        passes: whether the outputs are the inputs, without weights: of a projection of one input to a vector of its own width.
    """

    features: tuple[int, ...]
    columns: int
    combinations: int
    projections: int
    width: int
    passes: bool = False


@dataclass(frozen=True, slots=True)
class TowerShapes:
    """The modules of all towers; ``dim``: the columns of each vector of a DLRM, 0 for DCN-v2."""

    towers: tuple[TowerShape, ...]
    dim: int

    @property
    def compression(self) -> float:
        """The columns of the towers' inputs over those of their outputs."""
        return sum(one.columns for one in self.towers) / sum(one.width for one in self.towers)

    @property
    def vectors(self) -> int:
        """The vectors of all modules of a DLRM."""
        return sum(one.combinations + one.projections for one in self.towers)


def tower_shapes(features: Sequence[FeatureSpec], config: TrainConfig) -> TowerShapes | None:
    """The shapes of the towers' modules; None if the options have none, or the model is linear.

    Raises :class:`ConfigError` for towers that are not groups of all embedded inputs, for a network that has no modules, and for widths that
    no module can compress to.
    """
    options = config.tower_modules
    if options is None or not config.deep:
        return None
    if config.has_own_network:
        raise ConfigError("tower_modules needs a network with tower modules", where=_WHERE, value=f"network {config.network}",
                          allowed="dlrm, dcn", next_step="compress inside your own network, or leave tower_modules out")  # fmt: skip
    chosen = features_of_towers(features, options.towers, where=f"{_WHERE}.towers")
    if config.network == "dcn":
        _refuse_shape_of("dcn", options, ("combinations", "projections", "dim"), "compression, or width and rank")
        return TowerShapes(tuple(_dcn_shape(t, one, features, config) for t, one in enumerate(chosen)), 0)
    _refuse_shape_of("dlrm", options, ("width", "rank"), "compression, or combinations, projections and dim")
    dim = options.dim or _dlrm_dim(config.dim, options.compression or _HALF)
    if dim > config.dim:
        raise ConfigError("the dim of tower_modules must be at most that of the model", where=f"{_WHERE}.dim", value=options.dim,
                          allowed=f"1 to {config.dim}", next_step="give a smaller dim, or a larger one of the model")  # fmt: skip
    return TowerShapes(tuple(_dlrm_shape(t, one, features, options, dim) for t, one in enumerate(chosen)), dim)


def _refuse_shape_of(network: str, options: TowerOptions, others: Sequence[str], allowed: str) -> None:
    """Raise :class:`ConfigError` if the options have any of ``others``, which say the shape of another network's modules."""
    default = TowerOptions(options.towers)
    given = [name for name in others if getattr(options, name) != getattr(default, name)]
    if given:
        raise ConfigError(f"tower_modules of {network} must have its own shape", where=f"{_WHERE}.{given[0]}", value=getattr(options, given[0]),
                          allowed=allowed, next_step="leave it out")  # fmt: skip


def _dlrm_dim(dim: int, compression: float) -> int:
    width = dim / compression
    if not math.isclose(width, round(width)) or round(width) < 1:
        raise ConfigError("compression must divide the dim of the model", where=f"{_WHERE}.compression", value=f"{compression:g}, dim {dim}",
                          allowed="a ratio that gives a whole number of columns: " + ", ".join(f"{dim // k}" for k in range(dim, 0, -1) if dim % k == 0),
                          next_step="give another ratio, a larger dim, or the module's own dim and combinations")  # fmt: skip
    return round(width)


def _dlrm_shape(
    t: int, chosen: tuple[int, ...], features: Sequence[FeatureSpec], options: TowerOptions, dim: int
) -> TowerShape:
    columns = sum(features[f].width for f in chosen)
    combinations = math.ceil(options.combinations * len(chosen) - 1e-9)
    width = (combinations + options.projections) * dim
    if width > columns:
        raise ConfigError("the outputs of a tower must be at most as wide as its inputs", where=f"{_WHERE}, tower {t}", value=f"{width} of {columns} columns",
                          allowed=f"1 to {columns} columns", next_step="give smaller combinations, projections or dim")  # fmt: skip
    passes = options.module == PROJECTION and len(chosen) == 1 and width == dim == columns
    return TowerShape(chosen, columns, combinations, options.projections, width, passes)


def _dcn_shape(t: int, chosen: tuple[int, ...], features: Sequence[FeatureSpec], config: TrainConfig) -> TowerShape:
    options = config.tower_modules
    assert options is not None
    columns = sum(features[f].width for f in chosen)
    if not options.compression:
        # A tower of few columns gives all of them: a width is what towers of many columns are compressed to.
        return TowerShape(chosen, columns, 0, 0, min(options.width or config.dim, columns))
    if columns < options.compression:
        raise ConfigError("a tower must have at least as many columns as compression", where=f"{_WHERE}, tower {t}", value=f"{columns} columns",
                          allowed=f"at least {options.compression:g}", next_step="join towers, or give a smaller ratio")  # fmt: skip
    return TowerShape(chosen, columns, 0, 0, round(columns / options.compression))
