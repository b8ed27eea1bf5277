"""The minimum cut, compared with networkx, in ticks, compiled or not."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.planning.dags import by_networkx
from transforms.errors import InputError
from warehouse.planning import minimum_cut as module
from warehouse.planning.minimum_cut import SINK, SOURCE, Network, by_push_relabel, in_ticks, minimum_cut


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, list[int]]:
    vertices = draw(st.integers(3, 9))
    network = Network(vertices)
    inner = st.integers(2, vertices - 1)
    secs = st.one_of(st.integers(0, 6).map(float), st.just(math.inf), st.floats(0, 1e6))
    for tail, head, cost in draw(st.lists(st.tuples(inner, st.integers(1, vertices - 1), secs), max_size=30)):
        network.edge(tail, head, min(cost, 100.0) if head == SINK else cost)
    return network, draw(st.lists(inner, unique=True, max_size=3))


@given(networks())
def test_same_side_as_the_reference(drawn: tuple[Network, list[int]]) -> None:
    network, needed = drawn
    ours = minimum_cut(network, needed)
    assert ours.tolist() == minimum_cut(network, needed, by_networkx).tolist()
    assert ours[SOURCE]
    assert not ours[SINK]
    assert ours[needed].all()


@given(networks(), st.randoms(use_true_random=False))
def test_order_of_edges_does_not_show(drawn: tuple[Network, list[int]], chance: random.Random) -> None:
    network, needed = drawn
    order = list(range(len(network.tails)))
    chance.shuffle(order)
    shuffled = Network(network.vertices, *([column[i] for i in order] for column in
                                           (network.tails, network.heads, network.secs)))  # fmt: skip
    assert minimum_cut(network, needed).tolist() == minimum_cut(shuffled, needed[::-1]).tolist()


@pytest.mark.medium
def test_compiled_gives_what_python_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    for _ in range(20):
        network = Network(60)
        for _ in range(300):
            network.edge(chance.randrange(2, 60), chance.randrange(1, 60), chance.choice([1.0, 2.0, 0.37, 1e-9]))
        ticks = in_ticks(network)
        ticks.tails[:3] = SOURCE
        python = by_push_relabel(ticks)
        monkeypatch.setattr(module, "_COMPILED_FROM", 0)
        compiled = by_push_relabel(ticks)
        monkeypatch.undo()
        reference = by_networkx(ticks)
        assert python[0] == compiled[0] == reference[0] > 0
        assert python[1].tolist() == compiled[1].tolist() == reference[1].tolist()


@given(st.lists(st.floats(0, 1e300, allow_subnormal=False), min_size=1, max_size=40))
def test_ticks_are_as_fine_as_documented(costs: list[float]) -> None:
    network = Network(3)
    for secs in costs:
        network.edge(2, SINK, secs)
    network.edge(2, 3, math.inf)
    ticks = in_ticks(network)
    kept = [secs for secs in costs if secs > 0]
    total = Fraction(math.fsum(kept))
    tick = Fraction(ticks.tick_secs)
    assert int(ticks.capacities[:-1].sum()) == ticks.infinite - 1 < 2**52
    assert ticks.capacities[-1] == ticks.infinite
    assert not kept or tick <= total / 2**50 or tick == Fraction(math.ldexp(1.0, -1000))
    for secs, capacity in zip(kept, ticks.capacities.tolist(), strict=False):
        assert abs(capacity * tick - Fraction(secs)) <= tick / 2


def test_multiples_of_the_tick_are_exact() -> None:
    network = Network(3)
    for secs in (2.0**-40, 3.0, 5 * 2.0**-45):
        network.edge(2, SINK, secs)
    ticks = in_ticks(network)
    assert [capacity * ticks.tick_secs for capacity in ticks.capacities.tolist()] == network.secs


@pytest.mark.parametrize(("head", "secs"), [(3, -1.0), (3, math.nan), (SINK, math.inf)])
def test_capacities_that_are_refused(head: int, secs: float) -> None:
    with pytest.raises(InputError) as caught:
        Network(4).edge(2, head, secs)
    assert caught.value.value is secs


def test_a_wrong_answer_is_not_returned() -> None:
    network = Network(3)
    network.edge(2, SINK, 1.0)

    def all_but_the_sink(ticks: module.Ticks) -> tuple[int, np.ndarray]:
        return 0, np.arange(ticks.vertices) != SINK

    with pytest.raises(AssertionError, match="maximum flow 0"):
        minimum_cut(network, [2], all_but_the_sink)
