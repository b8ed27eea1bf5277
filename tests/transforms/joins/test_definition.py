"""Definitions of joined columns: their names, documents and what they refuse."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import DataError, InputError
from transforms.expressions.expression import boolean, int64, text, timestamp
from transforms.expressions.tables import table
from transforms.graphs.graph import component_document
from transforms.joins.column_names import Aggregate, is_joined
from transforms.joins.definition import JoinDefinition, KeyPair, column_type
from transforms.types import Dense

KEY = KeyPair(component_document(text("id").node), component_document(text("user").node))
COUNT = JoinDefinition(table="clicks", keys=(KEY,), aggregate=Aggregate.COUNT)


def _documents() -> list[dict[str, Any]]:
    keyed = table("clicks", available_after="10m", known_at="at", including_equal=True).where(boolean("ok")).by("id", equals=int64("user"))  # fmt: skip
    made = [keyed.count(), keyed.latest(text("x"), max_age="7d", order=timestamp("t")), keyed.ratio(boolean("c"), window="1h", prior=(1, 50)),
            table("clicks", as_of="day", zone="Asia/Kathmandu").by(int64("id")).distinct(int64("x"), window="7d"), keyed.last(3, text("x"), window="2d", hop="1h"), keyed.decayed(half_life="1h")]  # fmt: skip
    return [one.node.definition.to_document() for one in made]  # type: ignore[attr-defined]


@pytest.mark.parametrize("document", _documents())
def test_a_document_is_read_as_the_same_definition(document: dict[str, Any]) -> None:
    read = JoinDefinition.from_document(json.loads(json.dumps(document)))
    assert read.to_document() == document
    assert is_joined(read.column)


@pytest.mark.parametrize(
    "document", [COUNT.to_document(), *_documents()], ids=["plain", "count", "latest", "ratio", "distinct", "last", "decayed"]
)  # fmt: skip
@given(data=st.data())
def test_a_document_with_another_value_is_read_or_refused(document: dict[str, Any], data: st.DataObject) -> None:
    """Only errors of the project's root, whatever stands at any place."""
    changed: Any = copy.deepcopy(document)
    part, place = changed, None
    while isinstance(part, dict | list) and part and (place is None or data.draw(st.booleans())):
        holder, place = part, data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
        part = part[place]
    holder[place] = data.draw(st.sampled_from([None, True, -1, 2**63, 1.5, "", "x", [], {}, [1.0, 2.0], {"nodes": []}]))
    with suppress(DataError, InputError):
        definition = JoinDefinition.from_document(changed)
        column_type(definition)
        assert is_joined(definition.column)


def test_each_part_changes_the_column() -> None:
    keyed = table("clicks").by(int64("item"))
    made = [
        keyed.count(), keyed.count(window="7d"), keyed.count(window="8d"), keyed.sum(int64("n")), keyed.mean(int64("n")), keyed.sum(int64("m")),
        keyed.ratio(int64("n")), keyed.ratio(int64("n"), prior=(1, 2)), keyed.where(boolean("ok")).count(), keyed.by(text("user")).count(),
        table("views").by(int64("item")).count(), table("clicks", known_at="at").by(int64("item")).count(),
        table("clicks", available_after="1s").by(int64("item")).count(), table("clicks", including_equal=True).by(int64("item")).count(),
        keyed.last(3, int64("n")), keyed.last(4, int64("n")), keyed.ages(3), keyed.ages(3, int64("n")), keyed.decayed(half_life="1h"), keyed.decayed(half_life="2h"),
        keyed.decayed(int64("n"), half_life="1h"), keyed.distinct(int64("n")), keyed.distinct(int64("n"), precision=9), keyed.distinct(int64("n"), exact_most=9),
        keyed.count(window="7d", hop="1d"), *(table("clicks", as_of="day", zone=zone).by(int64("item")).count() for zone in ("UTC", "Asia/Tokyo")),
        keyed.latest(int64("n")), keyed.first(int64("n")), keyed.latest(int64("n"), order=int64("m")),
    ]  # fmt: skip
    assert len({one.node.definition.column for one in made}) == len(made)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["@clicks.count#0123456789abcdef", "@a.b-c.latest#" + "f" * 16])
def test_the_name_of_a_joined_column_is_known(name: str) -> None:
    assert is_joined(name)


@pytest.mark.parametrize(
    "name",
    ["clicks", "@clicks", "@clicks.count", "clicks.count#0123456789abcdef", "@clicks.count#0123456789ABCDEF", "@clicks.count#0123456789abcde",
     "@clicks.count#0123456789abcdef0", "@clicks.other#0123456789abcdef", "@.count#0123456789abcdef", "@a b.count#0123456789abcdef",
     "@clicks.count#0123456789abcdef\n"],
)  # fmt: skip
def test_another_name_is_not(name: str) -> None:
    assert not is_joined(name)


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ({"keys": ()}, "a join must have a key"),
        ({"value": component_document(int64("n").node)}, "a count none"),
        ({"aggregate": Aggregate.SUM}, "must have a value"),
        ({"prior": (1.0, 2.0)}, "only a ratio has one"),
        ({"rows": 3}, "other aggregates have no number of rows"),
        ({"half_life_micros": 3}, "only such a sum has one"),
        ({"precision": 12, "exact_most": 9}, "other aggregates have none"),
        ({"hop_micros": 3}, "a hop must be at most the window"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(parts: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        JoinDefinition(**({"table": "clicks", "keys": (KEY,), "aggregate": Aggregate.COUNT} | parts))


def test_the_type_follows_the_aggregate() -> None:
    keyed = table("users").by(text("id"))
    assert keyed.latest(text("country")).type == Dense("string")
    assert keyed.latest(text("country").hash_buckets(9)).type == Dense("int64", 9)
    assert (keyed.count().type, keyed.sum(int64("n")).type) == (Dense("int64"), Dense("float64"))


def test_an_event_of_the_same_table_cannot_include_equal_times() -> None:
    seen = JoinDefinition(table="clicks", keys=(KEY,), aggregate=Aggregate.COUNT, includes_equal=True)
    seen.check_events("views")
    COUNT.check_events("clicks")
    with pytest.raises(InputError, match="or an event sees itself"):
        seen.check_events("clicks")
