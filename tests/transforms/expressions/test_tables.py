"""The language of joined columns: ``table(...).by(...)`` and its aggregates."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import timedelta

import pyarrow.compute as pc
import pytest

from transforms.analysis.target import Target
from transforms.errors import InputError, TypeMismatch
from transforms.expressions.expression import Expr, boolean, column, float32, int64, ragged, text, timestamp
from transforms.expressions.model import Label, Model
from transforms.expressions.tables import table
from transforms.functions import op
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import RawColumn, component_document, component_from_document
from transforms.joins.column import JoinedColumn, joined_columns_of
from transforms.joins.definition import DayClock, JoinDefinition
from transforms.operators.zones import clock_changes
from transforms.ranges import between
from transforms.types import DType, Ragged

CLICKS = table("clicks").by(int64("item"))


@op(result="int64")
def doubled(x):  # type: ignore[no-untyped-def]
    return pc.multiply(x, 2)


def definition(of: Expr) -> JoinDefinition:
    assert isinstance(of.node, JoinedColumn)
    return of.node.definition


def test_a_joined_column_is_an_expression() -> None:
    above = CLICKS.count(window="7d").log1p() + 1
    assert str(above.type) == "Dense[float64]"
    assert list(joined_columns_of([above.node])) == [definition(CLICKS.count(window="7d")).column]


def test_the_stored_component_is_that_of_a_plain_raw_column() -> None:
    joined = CLICKS.latest(text("country"))
    plain = column(definition(joined).column, "string")
    assert joined.node == plain.node
    assert joined.node.identity == plain.node.identity
    of_joined, of_plain = (canonicalize(one.lower().hash_buckets(9).node) for one in (joined, plain))
    assert of_joined.identity == of_plain.identity
    assert json.dumps(component_document(of_joined)) == json.dumps(component_document(of_plain))
    read = component_from_document(component_document(joined.node))
    assert type(read) is RawColumn


@pytest.mark.parametrize("change", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
def test_a_copy_keeps_the_definition(change: Callable[[Expr], Expr]) -> None:
    joined = CLICKS.count()
    assert definition(change(joined)) == definition(joined)
    assert joined_columns_of([change(joined.log1p()).node]) == joined_columns_of([joined.node])


def test_equal_expressions_are_one_column() -> None:
    """Parts are in canonical form, so another order of commutative arguments is the same column."""
    a, b = boolean("a"), boolean("b")
    assert CLICKS.where(a & b).count().node == CLICKS.where(b & a).count().node
    assert CLICKS.where(a).where(b).count().node == CLICKS.where(a & b).count().node
    assert table("clicks").where(a).by(int64("item")).count().node == CLICKS.where(a).count().node
    assert CLICKS.count(window="7d").node == CLICKS.count(window=timedelta(days=7)).node


def test_a_key_is_read_from_both_tables() -> None:
    named, written = table("users").by("id", equals=text("user")), table("users").by(text("id"), equals=text("user"))
    assert named.count().node == written.count().node
    (key,) = definition(CLICKS.count()).keys
    assert key.other == key.own == component_document(int64("item").node)
    compound = table("clicks").by(int64("item")).by("hour", equals=timestamp("time").hour_of_day())
    assert len(definition(compound.count()).keys) == 2


def test_options_are_those_of_the_definition() -> None:
    keyed = table("clicks", available_after="10m", known_at="ingested_at", including_equal=True).where(boolean("ok")).by(int64("item"))  # fmt: skip
    found = definition(keyed.ratio(boolean("clicked"), window="7d", prior=(1, 50)))
    assert (found.available_after_micros, found.known_at, found.includes_equal) == (600 * 10**6, "ingested_at", True)
    assert (found.window_micros, found.prior) == (7 * 86_400 * 10**6, (1.0, 50.0))
    assert found.where == component_document(boolean("ok").node)
    latest = definition(keyed.latest(text("country"), max_age="90d", order=int64("version")))
    assert latest.window_micros == 90 * 86_400 * 10**6
    assert latest.order == component_document(int64("version").node)


def test_histories_have_their_numbers() -> None:
    last, ages = definition(CLICKS.last(50, text("query"), window="30d", hop="1d")), definition(CLICKS.ages(3))
    assert (last.rows, last.hop_micros, ages.rows, ages.value) == (50, 86_400 * 10**6, 3, None)
    assert CLICKS.last(5, text("query").hash_buckets(9)).type == Ragged(DType.INT64, 9)
    assert CLICKS.ages(5, text("query")).type == Ragged(DType.FLOAT64)
    decayed = definition(CLICKS.decayed(float32("price"), half_life="6h"))
    assert (decayed.half_life_micros, decayed.value) == (6 * 3600 * 10**6, component_document(float32("price").node))
    assert definition(CLICKS.decayed(half_life="6h")).value is None
    distinct = definition(CLICKS.distinct(int64("user"), exact_most=10, precision=14))
    assert (distinct.exact_most, distinct.precision) == (10, 14)


def test_a_table_as_of_midnight_has_the_changes_of_its_clock() -> None:
    daily, berlin = (
        table("clicks", as_of="day", **given).by(int64("item")) for given in ({}, {"zone": "Europe/Berlin"})
    )
    assert definition(daily.count()).as_of == DayClock("UTC", (), (0,))
    clock = definition(berlin.where(boolean("ok")).count()).as_of
    assert clock is not None
    assert (clock.zone, *clock_changes("Europe/Berlin")) == (clock.zone, clock.starts, clock.offsets_secs)
    assert definition(berlin.count()).column != definition(daily.count()).column != definition(CLICKS.count()).column


def test_a_model_has_the_definitions_of_its_inputs() -> None:
    count, rate = CLICKS.count(), CLICKS.ratio(boolean("clicked"), prior=(1, 50))
    model = Model("ctr", client="search", label="clicked")
    model.input("plain", text("query").hash_buckets(100))
    assert model.joins == {}
    model.input("both", count.log1p() * rate)
    model.input("again", (count + 0).log1p())
    assert model.joins == {definition(one).column: definition(one) for one in (count, rate)}
    copied = pickle.loads(pickle.dumps(model.inputs["both"].component))
    assert joined_columns_of([copied]) == model.joins
    alone = model.without_inputs()
    assert alone.joins == {}
    alone.inputs["both"] = model.inputs["both"]
    assert alone.joins == model.joins


def test_a_plain_column_of_its_name_does_not_hide_a_definition() -> None:
    """Inputs share canonical leaves, and the first one of an identity stays."""
    count = CLICKS.count()
    model = Model("ctr", client="search", label="clicked")
    model.input("plain", column(definition(count).column, "int64").log1p())
    model.input("joined", count.log1p())
    assert list(model.joins.values()) == [definition(count)]


@pytest.mark.parametrize("label", [CLICKS.count() > 1, {"a": "clicked", "b": CLICKS.count() > 1}, {"a": "clicked", "b": Label(CLICKS.count() > 1)}, definition(CLICKS.count()).column])  # fmt: skip
def test_a_label_is_not_joined(label: object) -> None:
    with pytest.raises(InputError, match="a label must be known after its event, got a joined column"):
        Model("ctr", client="search", label=label)  # type: ignore[arg-type]


def test_an_input_whose_events_would_see_themselves_is_refused() -> None:
    seen = table("clicks", including_equal=True).by(int64("item")).count()
    Model("ctr", client="search", label="clicked", table="views").input("seen", seen)
    with pytest.raises(InputError, match="or an event sees itself"):
        Model("ctr", client="search", label="clicked", table="clicks").input("seen", seen)


def test_a_plain_label_stays() -> None:
    assert Model("ctr", client="search", label="clicked").target == Target("clicked")


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: CLICKS.latest("country"), "must be an expression, which says its type"),
        (lambda: CLICKS.latest(CLICKS.count()), "must read stored columns, got a joined column"),
        (lambda: CLICKS.where(CLICKS.count() > 1), "must read stored columns, got a joined column"),
        (lambda: CLICKS.by("n", equals=CLICKS.count()), "must read stored columns, got a joined column"),
        (lambda: CLICKS.latest(text("a"), order=CLICKS.count()), "must read stored columns, got a joined column"),
        (lambda: CLICKS.latest(text("a").vocabulary_ids(over=between("2026-01-01", "2026-01-08"))), "must need no full pass"),
        (lambda: CLICKS.latest(doubled(int64("n"))), "got a function of your own"),
        (lambda: CLICKS.latest(ragged("a", "int64")), "must be one value"),
        (lambda: CLICKS.sum(text("a")), "must be a number"),
        (lambda: CLICKS.mean(timestamp("a")), "must be a number"),
        (lambda: CLICKS.where(int64("n")), "must be true or false"),
        (lambda: CLICKS.where("ok"), "must be an expression"),
        (lambda: table("users").by("id"), "must have a type"),
        (lambda: table("users").by("id", equals="user"), "must be an expression"),
        (lambda: table("users").by(float32("id")), "one value that is equal or not"),
        (lambda: table("users").by("ids", equals=ragged("ids", "int64")), "one value that is equal or not"),
        (lambda: table("users").by(int64("id"), equals=text("user")), "must have one type"),
        (lambda: table("a b"), "the name of a table"),
        (lambda: table("users", known_at=""), "known_at must be the name of a stored column"),
        (lambda: table("users", including_equal=1), "including_equal must be True or False"),
        (lambda: table("users", available_after="soon"), "available_after must be a duration"),
        (lambda: CLICKS.latest(text("a"), max_age="-1d"), "max_age must be a duration"),
        (lambda: CLICKS.count(window=7), "window must be a duration"),
        (lambda: CLICKS.count(hop="1h"), "a hop must be at most the window"),
        (lambda: CLICKS.count(window="1h", hop="2h"), "a hop must be at most the window"),
        (lambda: table("users", as_of="day").by(int64("id")).count(window="2h", hop="1h"), "not beside as_of"),
        (lambda: table("users", as_of="hour"), 'as_of must be "day"'),
        (lambda: table("users", zone="Europe/Berlin"), 'as_of must be "day"'),
        (lambda: table("users", as_of="day", zone="Nowhere"), "unknown time zone"),
        (lambda: CLICKS.last(0, int64("n")), "rows must be a whole number in its range"),
        (lambda: CLICKS.ages(True), "rows must be a whole number in its range"),
        (lambda: CLICKS.last(3, ragged("n", "int64")), "must be one value"),
        (lambda: CLICKS.last(3, None), "must be an expression"),
        (lambda: CLICKS.decayed(half_life="0s"), "must have a half-life"),
        (lambda: CLICKS.decayed(text("a"), half_life="1h"), "must be a number"),
        (lambda: CLICKS.distinct(int64("n"), exact_most=0), "exact_most must be a whole number"),
        (lambda: CLICKS.distinct(int64("n"), precision=17), "precision must be a whole number"),
        (lambda: CLICKS.ratio(boolean("c"), prior=(1,)), "a prior must be two numbers"),
        (lambda: CLICKS.ratio(boolean("c"), prior=(-1, 2)), "a prior must be two numbers"),
        (lambda: CLICKS.ratio(boolean("c"), prior=(float("nan"), 2)), "a prior must be two numbers"),
    ],
)  # fmt: skip
def test_what_a_join_does_not_take_is_refused(make: Callable[[], object], rule: str) -> None:
    with pytest.raises((InputError, TypeMismatch), match=rule):
        make()


def test_a_text_in_place_of_an_expression_shows_what_to_write() -> None:
    with pytest.raises(TypeMismatch) as caught:
        CLICKS.latest("country")  # type: ignore[arg-type]
    assert caught.value.next_step == "hr.int64('country'), or hr.text('country') if it is a text"


def test_a_table_without_a_key_has_no_aggregates() -> None:
    assert not hasattr(table("clicks"), "count")
