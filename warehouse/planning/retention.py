"""Which memos are worth their storage at an age of the data: what to keep, and what to drop. Pure.

Storing is paid by the day, so it is decided about again every day: keep a memo if the requests that are expected over the
best time to hold it save more than writing and storing it, drop it if they save less than storing it. A dropped memo was
written, so keeping needs a larger gain than staying: the price of writing lies between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from warehouse.planning.cheapest import DagNode, Label, cheapest_plan
from warehouse.planning.forecast import NO_HOLD, Hold, best_hold

__all__ = ["MemoPrice", "Outlook", "requesters", "worth_dropping", "worth_keeping"]


@dataclass(frozen=True, slots=True)
class MemoPrice:
    """The prices of a memo in CPU seconds per row.

    Attributes:
        saving_secs: Computing it alone from raw columns, less loading it; below 0 if loading costs more.
        write_secs: Writing it.
        day_secs: Storing it for a day.
    """

    saving_secs: float
    write_secs: float
    day_secs: float


@dataclass(frozen=True)
class Outlook:
    """The prices and the expected requests of operations over data of one age.

    Attributes:
        prices: Prices by fingerprint.
        requests_per_day: Expected requests a day, by fingerprint and bucket of age.
        bucket: The bucket of the data's age (:mod:`warehouse.planning.forecast`).
        horizon_days: The longest time to look ahead.
    """

    prices: Mapping[str, MemoPrice]
    requests_per_day: Mapping[str, Sequence[float]]
    bucket: int
    horizon_days: float = 30.0

    def hold(self, fingerprint: str) -> Hold:
        """The time for which storing the memo pays, once it is written."""
        price = self.prices[fingerprint]
        if price.saving_secs <= 0:
            return NO_HOLD
        return best_hold(self.requests_per_day[fingerprint], self.bucket, saving_secs=price.saving_secs,
                         day_secs=price.day_secs, horizon_days=self.horizon_days)  # fmt: skip

    def pays(self, fingerprint: str, hold: Hold, *, is_requested: bool) -> bool:
        """Whether the requests of the hold pay for writing and storing; the first one computes it in any case."""
        price = self.prices[fingerprint]
        loads = hold.requests if is_requested else hold.requests - 1.0
        return loads * price.saving_secs > price.write_secs + hold.days * price.day_secs


def requesters(
    arguments: Mapping[str, Sequence[str]], models: Mapping[str, Collection[str]], stored: Collection[str]
) -> dict[str, frozenset[str]]:
    """The models whose requests reach each node: what is stored is loaded, and its arguments are not requested for it.

    ``arguments``: the arguments of each node, in topological order. ``models``: the models that have a node as an input.
    Without this rule, a subgraph of many stored components would seem to be requested by all their models.
    """
    found = {node: set(models.get(node, ())) for node in arguments}
    for node in reversed(list(arguments)):
        if node not in stored:
            for argument in arguments[node]:
                found[argument] |= found[node]
    return {node: frozenset(names) for node, names in found.items()}


def worth_keeping(
    nodes: Sequence[DagNode], wanted: Collection[str], outlook: Outlook, *, is_requested: bool
) -> tuple[str, ...]:
    """The operations without memos that the cheapest plan keeps, in the order of ``nodes``.

    The plan is that of an average day of the time for which a memo would be held, with its part of the price of writing.
    ``is_requested``: a request comes now, beside the expected ones. Raises what
    :func:`~warehouse.planning.cheapest.cheapest_plan` raises.
    """
    holds = {
        node.id: outlook.hold(node.id) for node in nodes if node.id in outlook.prices and node.cost.load_secs is None
    }
    candidates = {name for name, hold in holds.items() if outlook.pays(name, hold, is_requested=is_requested)}
    if not candidates:
        return ()
    priced, reuse = [], {}
    for node in nodes:
        hold = holds.get(node.id, NO_HOLD)
        if (rates := outlook.requests_per_day.get(node.id)) is not None:
            reuse[node.id] = rates[outlook.bucket]
            if node.id in candidates:
                reuse[node.id] = max(reuse[node.id], hold.requests / hold.days)
            if not is_requested:
                # The plan has a present request; here the first of the expected ones takes its place.
                reuse[node.id] = max(reuse[node.id] - 1.0 / max(hold.days, 1.0), 0.0)
        if node.id in candidates:
            price = outlook.prices[node.id]
            keep_secs = price.day_secs + price.write_secs / max(hold.days, 1.0)
            node = replace(node, cost=replace(node.cost, keepable=True, keep_secs=keep_secs))
        elif node.cost.keepable:
            node = replace(node, cost=replace(node.cost, keepable=False))
        priced.append(node)
    for node in reversed(nodes):
        for arg in node.args:
            reuse[arg] = max(reuse.get(arg, 0.0), reuse.get(node.id, 0.0))
    labels = cheapest_plan(priced, wanted, {name: 1.0 + requests for name, requests in reuse.items()}).labels
    return tuple(node.id for node in nodes if labels[node.id] is Label.KEEP)


def worth_dropping(stored: Collection[str], outlook: Outlook) -> tuple[str, ...]:
    """The stored operations whose coming requests save less than storing them, sorted."""
    return tuple(sorted(name for name in stored if outlook.hold(name).days == 0))
