"""Admission policies: which nodes of a merged DAG are loaded, computed or kept. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from transforms.errors import InputError
from warehouse.planning.cheapest import DagNode, Label, Reuse, cheapest_plan
from warehouse.planning.policy_names import PolicyName


class AdmissionPolicy(Protocol):
    """A policy with a name; ``weighs_costs``: its decision depends on the costs of nodes."""

    name: ClassVar[str]
    weighs_costs: ClassVar[bool]

    def labels(self, nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse = 1.0) -> Mapping[str, Label]:
        """A label for every node, in the given topological order. Pure."""
        ...


@dataclass(frozen=True, slots=True)
class KeepAll:
    """The paper's policy: keep every component of a model at any cost, but no part of a component."""

    name: ClassVar[str] = PolicyName.ALL
    weighs_costs: ClassVar[bool] = False

    def labels(self, nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse = 1.0) -> dict[str, Label]:
        """Wanted nodes are loaded or kept, their arguments computed once. ``reuse`` is ignored."""
        return _whole_components(nodes, wanted, Label.KEEP, Label.COMPUTE_TRANSIENT)


@dataclass(frozen=True, slots=True)
class KeepNone:
    """Keep nothing: load the components with memos, compute the others at every read."""

    name: ClassVar[str] = PolicyName.NONE
    weighs_costs: ClassVar[bool] = False

    def labels(self, nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse = 1.0) -> dict[str, Label]:
        """Wanted nodes are loaded or computed. ``reuse`` is ignored."""
        return _whole_components(nodes, wanted, Label.COMPUTE, Label.COMPUTE)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """The cheapest plan over the horizon, by a minimum cut; parts of components are kept where that is cheaper.

    ``horizon_days``: the time for which requests and storage are counted.
    """

    name: ClassVar[str] = PolicyName.ADAPTIVE
    weighs_costs: ClassVar[bool] = True
    horizon_days: float = 30.0

    def __post_init__(self) -> None:
        if not (self.horizon_days > 0 and math.isfinite(self.horizon_days)):
            raise InputError("horizon_days must be a finite number > 0", where="Adaptive.horizon_days", value=self.horizon_days,
                             allowed="> 0")  # fmt: skip

    def labels(self, nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse = 1.0) -> Mapping[str, Label]:
        """The labels of :func:`~warehouse.planning.cheapest.cheapest_plan`; raises what that raises."""
        return cheapest_plan(nodes, wanted, reuse).labels


_POLICIES: Mapping[str, Callable[[], AdmissionPolicy]] = {
    policy.name: policy for policy in (KeepAll, Adaptive, KeepNone)
}


def policy_named(name: str) -> AdmissionPolicy:
    """The policy of this name with its defaults. Raises :class:`InputError` with the known names."""
    if name not in _POLICIES:
        raise InputError("no such policy", value=name, allowed=", ".join(sorted(_POLICIES)))
    return _POLICIES[name]()


def _whole_components(
    nodes: Sequence[DagNode], wanted: Collection[str], missing: Label, interior: Label
) -> dict[str, Label]:
    """Wanted nodes without a memo get ``missing``, their arguments ``interior``; columns are loaded."""
    labels = dict.fromkeys((node.id for node in nodes), Label.SKIP)
    results = frozenset(wanted)
    needed = set(results)
    for node in reversed(nodes):
        if node.id not in needed:
            continue
        is_raw = math.isinf(node.cost.compute_secs)
        if is_raw or (node.id in results and node.cost.load_secs is not None):
            labels[node.id] = Label.LOAD
            continue
        labels[node.id] = missing if node.id in results else interior
        needed.update(node.args)
    return labels
