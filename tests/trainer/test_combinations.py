"""One table says which options do not go together; commands, runs, servers and the page have it."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import pytest

from tests.conftest import ROOT
from tests.support.generated_part import check_generated_part
from trainer.errors import ConfigError
from trainer.options.combinations import REFUSALS, Setup, check_setup, place_of, refusal_of

_PAGE = ROOT / "docs" / "combinations.md"


def small_setups():
    """Each combination of at most four options; ``hosts`` is one of them with two hosts. A refusal is about fewer."""
    given = {one.name: 2 if one.name == "hosts" else True for one in fields(Setup)}
    for count in range(5):
        for names in itertools.combinations(given, count):
            yield Setup(**{name: given[name] for name in names})


def test_the_page_has_the_table() -> None:
    rows = [f"| {place_of(one)} | {one.what} | {one.reason} | {one.next_step} |\n" for one in REFUSALS]
    expected = "".join(["| options | rule | why | next step |\n", "|---|---|---|---|\n", *rows])
    check_generated_part(_PAGE, expected)


def test_each_refusal_is_the_first_of_some_setup() -> None:
    """An entry behind others that always hold with it would never be said."""
    assert {refusal_of(one) for one in small_setups()} == {None, *REFUSALS}


def test_a_setup_of_each_kind_at_each_place_may_train() -> None:
    for kind in ({}, {"hashed": True}, {"pruned": True}, {"hashed": True, "pruned": True}):
        check_setup(Setup(**kind))
        check_setup(Setup(**kind, servers=True))
        check_setup(Setup(**kind, hosts=4, towers=True))
    check_setup(Setup(pruned=True, hosts=4))
    check_setup(Setup(pruned=True, hosts=4, servers=True, workers=True))
    check_setup(Setup(hashed=True, hosts=4, servers=True))
    check_setup(Setup(hashed=True, pruned=True, hosts=4, servers=True, workers=True))
    check_setup(Setup(hosts=4, servers=True, workers=True, plan=True))


@pytest.mark.parametrize("kind", ["hashed", "pruned"])
def test_tables_whose_places_are_divided_need_all_that_divide_them(kind) -> None:
    """On servers it does not matter how many hosts there are."""
    for owners, setup in (
        ("servers", Setup(servers=True, least_servers=True)),
        ("hosts", Setup(hosts=3, least_hosts=True)),
    ):
        check_setup(setup)
        with pytest.raises(ConfigError, match=f"{kind} tables must be on all {owners}"):
            check_setup(replace(setup, **{kind: True}))
    check_setup(Setup(hosts=3, servers=True, least_hosts=True, **{kind: True}))


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda one: one.what)
def test_leaving_out_what_a_refusal_names_is_enough(refusal) -> None:
    """Of the smallest setup that has it."""
    setup = min((one for one in small_setups() if refusal_of(one) is refusal), key=_size)
    with pytest.raises(ConfigError, match=refusal.what) as caught:
        check_setup(setup)
    assert caught.value.next_step
    assert "must" in refusal.what
    assert _size(setup) <= 3


def _size(setup: Setup) -> int:
    return sum(bool(getattr(setup, one.name)) if one.name != "hosts" else setup.hosts > 1 for one in fields(Setup))
