"""The account of the adaptive policy, and its bound over adversarial requests."""

from __future__ import annotations

import hashlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from transforms.errors import InputError
from warehouse.planning.regret import (
    BOUND_SCALES,
    LEARNING,
    LIMIT,
    Account,
    Advisor,
    Shares,
    bound_secs,
    charge,
    shares,
)


def pay(
    account: Account, all_secs: float, none_secs: float, forecast_secs: float, making_secs: float, before: Shares
) -> tuple[Account, Shares]:
    """The account after a period in which the shares paid, moving to ``all`` included, and those shares."""
    now = shares(account)
    # What the forecast kept is unknown, so a move from it to `all` makes everything.
    moved = max(now.all - before.all, 0.0) * making_secs if now.forecast == 0 else 0.0
    own = now.forecast * forecast_secs + now.all * all_secs + now.none * none_secs + moved
    return charge(account, own_secs=own, all_secs=all_secs, none_secs=none_secs, making_secs=making_secs), now


secs = st.floats(0, 100, allow_subnormal=False)
period = st.tuples(secs, secs, secs)


@settings(max_examples=scaled(300))
@given(st.lists(period, max_size=60), st.integers(1, 30), secs)
def test_the_bound_holds_for_any_costs(periods: list[tuple[float, float, float]], times: int, making: float) -> None:
    """Whatever the forecast costs, and in whatever order the fixed policies are cheap."""
    account, now = Account(), Shares()
    for all_secs, none_secs, forecast_secs in periods * times:
        account, now = pay(account, all_secs, none_secs, forecast_secs, making, now)
        assert account.own_secs <= bound_secs(account) * (1 + 1e-9)


@pytest.mark.parametrize("making", [0.0, 1.0, 50.0])
def test_the_bound_holds_against_an_adversary(making: float) -> None:
    """Each period charges the policy with the larger share, and the forecast most of all."""
    account, now = Account(), Shares()
    for _ in range(20_000):
        next_shares = shares(account)
        all_is_dear = next_shares.all >= next_shares.none
        account, now = pay(account, float(all_is_dear), float(not all_is_dear), 3.0, making, now)
        assert account.own_secs <= bound_secs(account)
    assert account.hedged_secs is not None
    assert account.own_secs > 1.05 * account.best_secs, "the adversary does harm"


def test_the_constants_are_those_of_the_proof() -> None:
    factor = (1 + LEARNING) * LEARNING / (1 - math.exp(-LEARNING))
    assert factor <= LIMIT
    assert factor * math.log(2) / LEARNING + (1 + LEARNING) * 2 + 2 + 3 <= BOUND_SCALES


def test_a_good_forecast_decides_alone() -> None:
    account = Account()
    for _ in range(100):
        account = charge(account, own_secs=1.0, all_secs=3.0, none_secs=2.0, making_secs=1.0)
    assert shares(account) == Shares(1.0, 0.0, 0.0)
    assert {shares(account).advisor(hashlib.sha256(bytes([i])).hexdigest()) for i in range(50)} == {Advisor.FORECAST}


def test_a_bad_forecast_is_replaced_and_returns() -> None:
    account = Account()
    while account.hedged_secs is None:
        account = charge(account, own_secs=5.0, all_secs=3.0, none_secs=1.0, making_secs=1.0)
    assert shares(account) == Shares(0.0, 0.5, 0.5)
    for _ in range(3000):
        now = shares(account)
        if now.forecast:
            break
        account = charge(account, own_secs=1.0 + 2.0 * now.all, all_secs=3.0, none_secs=1.0, making_secs=1.0)
    else:
        pytest.fail("the forecast must decide again once the total is near the best")
    assert account.own_secs <= LIMIT * account.best_secs + account.scale_secs


@given(st.floats(0, 1))
def test_fragments_are_divided_by_digest(share: float) -> None:
    digests = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(400)]
    found = [Shares(0.0, share, 1 - share).advisor(digest) for digest in digests]
    assert found.count(Advisor.ALL) == pytest.approx(share * 400, abs=60)
    assert set(found) <= {Advisor.ALL, Advisor.NONE}
    grown = [Shares(0.0, min(share + 0.1, 1.0), max(0.9 - share, 0.0)).advisor(digest) for digest in digests]
    assert all(after is Advisor.ALL for before, after in zip(found, grown, strict=True) if before is Advisor.ALL)


@given(st.floats(1e-300, 1e300))
def test_the_scale_is_the_next_power_of_two(largest: float) -> None:
    scale = charge(Account(), own_secs=0.0, all_secs=0.0, none_secs=0.0, making_secs=largest).scale_secs
    assert scale / 2 < largest <= scale
    assert math.frexp(scale)[0] == 0.5


@pytest.mark.parametrize("paid", [(-1.0, 0.0, 0.0, 0.0), (0.0, math.nan, 0.0, 0.0), (0.0, 0.0, math.inf, 0.0)])
def test_costs_are_checked(paid: tuple[float, float, float, float]) -> None:
    with pytest.raises(InputError, match="costs of a period"):
        charge(Account(), own_secs=paid[0], all_secs=paid[1], none_secs=paid[2], making_secs=paid[3])
