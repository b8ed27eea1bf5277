"""Which hosts have the tables of each tower, and which worker of a tower takes the bags of each host. Pure.

A tower is a group of features whose tables are on the same hosts (Luo et al., "Disaggregated Multi-Tower", MLSys 2024, section 3.1). Workers
of equal rank on different hosts are *peers*: bags and combined bags go between peers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer.errors import ConfigError
from trainer.options.towers import HostTowers, Towers, check_members, check_towers
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.tables.spec import FeatureSpec, tables_of

#: The most hosts and the most workers of a host.
_MOST = 4096


@dataclass(frozen=True, slots=True)
class TowerPlacement:
    """The towers of a job of ``hosts`` x ``host_workers`` workers. Worker w of host h has the rank ``h * host_workers + w``.

    Attributes:
        hosts, host_workers: whole numbers from 1 on.
        towers: the names of the features of each tower.
        tower_hosts: the hosts of each tower; each host has one tower. Empty: consecutive hosts, as equal in number as they can be.

    Raises :class:`ConfigError` for more towers than hosts or features, a tower without features, a feature in two towers, and for hosts
    without a tower or with two.
    """

    hosts: int
    host_workers: int
    towers: tuple[tuple[str, ...], ...]
    tower_hosts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("hosts", "host_workers"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= _MOST:
                raise ConfigError(f"{name} must be a whole number", where=name, value=value, allowed=f"1 to {_MOST}")
        check_towers(self.towers)
        if len(self.towers) > self.hosts:
            raise ConfigError("towers must be at most as many as hosts", where="towers", value=len(self.towers),
                              allowed=f"1 to {self.hosts}", next_step="give each tower a host of its own, or join towers")  # fmt: skip
        if not self.tower_hosts:
            cuts = [self.hosts * t // len(self.towers) for t in range(len(self.towers) + 1)]
            hosts = tuple(tuple(range(first, stop)) for first, stop in pairwise(cuts))
            object.__setattr__(self, "tower_hosts", hosts)
        placed = sorted(host for hosts in self.tower_hosts for host in hosts)
        if len(self.tower_hosts) != len(self.towers) or not all(self.tower_hosts) or placed != list(range(self.hosts)):
            raise ConfigError("each host must have one tower, and each tower a host", where="tower_hosts", value=self.tower_hosts,
                              allowed=f"the hosts 0 to {self.hosts - 1}, each once, in {len(self.towers)} groups")  # fmt: skip

    @property
    def workers(self) -> int:
        """All workers."""
        return self.hosts * self.host_workers

    def host_of(self, rank: int) -> int:
        """The host of a worker."""
        return rank // self.host_workers

    def tower_of(self, host: int) -> int:
        """The tower of a host."""
        return next(t for t, hosts in enumerate(self.tower_hosts) if host in hosts)

    def group_of(self, tower: int) -> tuple[int, ...]:
        """The ranks of a tower's workers, host after host: a worker's *place* is its position among them."""
        return tuple(host * self.host_workers + w for host in self.tower_hosts[tower] for w in range(self.host_workers))

    def peers_of(self, rank: int) -> tuple[int, ...]:
        """The ranks of the workers with the place of ``rank`` on their hosts, by host."""
        return tuple(host * self.host_workers + rank % self.host_workers for host in range(self.hosts))

    def peer_host(self, tower: int, host: int) -> int:
        """The host of a tower that takes the bags of ``host``: itself if it is one of them.

        Other hosts are spread evenly over those of a tower: so towers of different numbers of hosts have virtual groups of peers.
        """
        own = self.tower_hosts[tower]
        if host in own:
            return host
        others = [one for one in range(self.hosts) if one not in own]
        return own[others.index(host) % len(own)]

    def sources_of(self, host: int) -> tuple[int, ...]:
        """The hosts whose bags ``host`` takes, ascending."""
        tower = self.tower_of(host)
        return tuple(one for one in range(self.hosts) if self.peer_host(tower, one) == host)


def placement_of_hosts(towers: HostTowers, hosts: int) -> TowerPlacement:
    """The placement of the hosts of a job, each of which is a worker: its hosts are the machines.

    It has the tables where hosts on machines of their own have them. Raises :class:`ConfigError` for machines that hosts do not fill, or that
    towers do not divide equally.
    """
    of_machine = towers.machine_hosts
    if of_machine < 1 or hosts % of_machine:
        raise ConfigError("the hosts of a machine must divide the hosts of the job", where="--hosts-per-machine", value=of_machine,
                          allowed=f"a divisor of {hosts}")  # fmt: skip
    machines = hosts // of_machine
    if of_machine > 1 and machines % len(towers.towers):
        raise ConfigError("towers must divide the machines of a job equally", where="--hosts-per-machine", value=f"{len(towers.towers)} towers, {machines} machines",
                          allowed="as many machines, or a multiple", next_step="make other towers, or leave --hosts-per-machine out")  # fmt: skip
    return TowerPlacement(machines, of_machine, towers.towers)


def tower_partition(features: Sequence[FeatureSpec], placement: TowerPlacement) -> PartitionPlan:
    """The plan of towers: the rows of each table are spread over the workers of its tower.

    By this plan the flat exchange has the bits of the exchange by towers. Raises :class:`ConfigError` as :func:`features_of_towers` does.
    """
    workers = {
        features[f].table.name: placement.group_of(t)
        for t, own in enumerate(features_of_towers(features, placement.towers))
        for f in own
    }
    return PartitionPlan(
        placement.workers,
        tuple(
            TablePlan(one.name, one.vocabulary_size, one.dim, (Slice(0, one.dim, workers[one.name]),))
            for one in tables_of(features)
        ),
    )


def features_of_towers(
    features: Sequence[FeatureSpec], towers: Towers, *, where: str = "towers"
) -> tuple[tuple[int, ...], ...]:
    """The positions in ``features`` of those of each tower, ascending.

    Raises :class:`ConfigError` for more towers than features, a name that is none of the features, a feature that is left out, and for
    features of different towers that share a table.
    """
    check_towers(towers, where=where)
    check_members({one.name: one.table.name for one in features}, towers, where=where)
    position = {one.name: f for f, one in enumerate(features)}
    return tuple(tuple(sorted(position[name] for name in tower)) for tower in towers)
