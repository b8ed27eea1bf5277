"""The modules of towers on the hosts of a job: each is trained on the hosts of its tower, and gathered for commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainer.model.inputs import InputLayout
from trainer.options.config import TrainConfig
from trainer.options.towers import Towers
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.towers.placement import TowerPlacement, features_of_towers

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel


def has_own_modules(layout: InputLayout, config: TrainConfig, towers: Towers) -> bool:
    """Whether the hosts of ``towers`` apply the modules of the model: these have the same towers, and train without staleness.

    The inputs of a DLRM must have the model's ``dim``. Otherwise raw activations cross hosts, and all hosts have all modules.
    """
    options = config.tower_modules
    if options is None or not config.deep or config.staleness:
        return False
    if config.network == "dlrm" and any(one.width != config.dim for one in layout.features):
        return False
    return features_of_towers(layout.features, towers) == features_of_towers(layout.features, options.towers)


class TowerWeights:
    """The modules of all towers in the dense part of one host, of which it trains that of its own tower.

    Attributes:
        own: the module of the host's tower. Others have the weights of the last :meth:`gather`, or of the state that was loaded.
    """

    def __init__(self, dense: DenseModel, placement: TowerPlacement, exchange: Exchange) -> None:
        self._exchange = exchange
        self._modules = [dense.tower_module(t) for t in range(len(placement.towers))]
        self._givers = [placement.group_of(t)[0] for t in range(len(placement.towers))]
        self.own = self._modules[placement.tower_of(exchange.rank)]

    def gather(self) -> None:
        """Give the dense part the weights and slots of all towers' modules, which the first host of each tower sends. All hosts call it at once."""
        sent = [np.ravel(one.numpy()) for one in self.own.variables] if self._exchange.rank in self._givers else []
        received = self._exchange.all_to_all([sent] * self._exchange.hosts)
        for module, giver in zip(self._modules, self._givers, strict=True):
            if module is not self.own:
                for variable, value in zip(module.variables, received[giver], strict=True):
                    variable.assign(np.asarray(value).reshape(variable.shape))
