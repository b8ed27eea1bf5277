"""What crosses the hosts of a slice when it exchanges combined bags, flat and by a tower on each host: compiled, and run on no TPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.errors import ConfigError
from trainer.tpu_check.checked_model import CheckedModel
from trainer.tpu_check.devices import Devices
from trainer.tpu_check.environment import TpuEnvironment

_TIMEOUT_SECS = 900.0
#: The rows of a table on a device: no matter for what is exchanged.
_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives of one program: their number by kind, and the bytes that they leave on a device."""

    counts: Mapping[str, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class HostTraffic:
    """The collectives of a program whose groups are on several hosts, and of those on one host each."""

    between: Collectives
    inside: Collectives


@dataclass(frozen=True, slots=True)
class BagExchange:
    """The exchange of combined bags on a slice, in two ways.

    Attributes:
        features: those of the program: the model's, and as many more as make their number a multiple of the hosts.
        bag: ids of each of their bags.
        dim: columns of their rows.
    """

    features: int
    bag: int
    dim: int
    flat: HostTraffic
    towers: HostTraffic


def check_hosts_of_towers(topology: str, devices: Devices) -> None:
    """Raise :class:`ConfigError` for a slice of one host."""
    if devices.hosts < 2:
        raise ConfigError("a slice must have two hosts or more for towers of a host each", where="--towers", value=f"{devices.hosts} host of {topology}",
                          next_step="check a larger slice, or leave --towers out")  # fmt: skip


def check_bag_exchange(
    model: CheckedModel, topology: str, devices: Devices, environment: TpuEnvironment, *, bag: int
) -> BagExchange:
    """Compile the exchange of features of the model's widest rows, with bags of ``bag`` ids.

    Raises :class:`ConfigError` where the environment is not installed, :class:`~trainer.errors.CheckFailed` for a compiler that ends with an error.
    """
    own = model.layout.features
    features = -(-len(own) // devices.hosts) * devices.hosts
    dim = max(one.table.dim for one in own)
    asked = {
        "topology": topology,
        "hosts": devices.hosts,
        "events": model.events_per_replica,
        "features": features,
        "bag": bag,
        "rows": _ROWS,
        "dim": dim,
    }
    found = environment.run("compiling", "trainer.tpu_check.tower_program", asked, timeout_secs=_TIMEOUT_SECS)
    return BagExchange(features, bag, dim, _traffic(found["flat"]), _traffic(found["towers"]))


def _traffic(found: Mapping[str, Mapping[str, Any]]) -> HostTraffic:
    return HostTraffic(*(
        Collectives({kind: count for kind, (count, _) in found[where].items()}, sum(size for _, size in found[where].values()))
        for where in ("between", "inside")
    ))  # fmt: skip
