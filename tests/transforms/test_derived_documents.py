"""Documents that are derived from annotations: what is written, read and refused."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest

from tests.support.examples import scaled
from tests.support.mutations import mutated
from transforms.derived_documents import (
    Derivation,
    Digest,
    Form,
    Later,
    Named,
    Omitted,
    Row,
    Tagged,
    document_of,
    number,
    read_value,
    whole,
)
from transforms.documents import Part, parse_document
from transforms.errors import DataError, InputError

SHA = "0f" * 32


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Pair:
    first: int
    second: float = 0.5

    def check_read(self, part: Part) -> None:
        if self.first > 100:
            raise part.refused("a pair of small numbers")


@dataclass(frozen=True)
class Circle:
    radius: Annotated[float, number(0.0)]


@dataclass(frozen=True)
class Square:
    side: Annotated[int, whole(1, 9)]


@dataclass(frozen=True)
class Thing:
    name: str
    sha: Digest
    count: Annotated[int, whole(0, 255)]
    share: float
    is_big: Annotated[bool, Named("big")]
    colour: Colour
    kind: Literal["a", "b"]
    at: datetime
    pairs: tuple[Row[Pair], ...]
    point: tuple[int, str]
    by_name: Mapping[str, Pair]
    names: frozenset[str]
    shape: Annotated[Circle | Square, Tagged("type", {"circle": Circle, "square": Square})]
    spaced: Annotated[tuple[str, ...], Form(lambda part: tuple(part.text().split()), " ".join)]
    more: Any
    maybe: Digest | None = None
    inner: Omitted[tuple[Thing, ...]] = ()
    label: Omitted[str] = ""
    later: Later[int] = 7
    rows: Omitted[Mapping[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name == "never":
            raise InputError("a thing must have another name", value=self.name, allowed="any but never")


def thing(**changes: Any) -> Thing:
    members: dict[str, Any] = {
        "name": "x", "sha": SHA, "count": 3, "share": -1.5, "is_big": True, "colour": Colour.BLUE, "kind": "b",
        "at": datetime(2026, 1, 2, tzinfo=UTC), "pairs": (Pair(1, 2.0), Pair(3)), "point": (1, "y"), "by_name": {"p": Pair(4)},
        "names": frozenset({"b", "a"}), "shape": Square(2), "spaced": ("u", "v"), "more": {"k": [None]},
    }  # fmt: skip
    return Thing(**{**members, **changes})


WRITTEN = {
    "name": "x", "sha": SHA, "count": 3, "share": -1.5, "big": True, "colour": "blue", "kind": "b",
    "at": "2026-01-02T00:00:00+00:00", "pairs": [[1, 2.0], [3, 0.5]], "point": [1, "y"],
    "by_name": {"p": {"first": 4, "second": 0.5}}, "names": ["a", "b"], "shape": {"type": "square", "side": 2},
    "spaced": "u v", "more": {"k": [None]}, "maybe": None, "later": 7,
}  # fmt: skip


def test_a_document_is_what_the_annotations_say() -> None:
    assert list(document_of(thing()).items()) == list(WRITTEN.items())
    whole_thing = thing(maybe=SHA, inner=(thing(name="z"),), label="l", later=8, rows={"r": 1}, shape=Circle(1.0))
    written = document_of(whole_thing)
    assert {"inner", "label", "rows"} <= written.keys()
    for one in (thing(), whole_thing):
        assert read_value(Thing, Part(json.loads(json.dumps(document_of(one))), "thing")) == one


def test_a_member_of_a_later_release_may_be_absent() -> None:
    document = {name: value for name, value in WRITTEN.items() if name != "later"}
    assert read_value(Thing, Part(document, "thing")) == thing()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": 3}, "name of the thing must be a string, got 3"),
        ({"name": "\ud800"}, "name of the thing must be a string without lone surrogates"),
        ({"sha": "0F" * 32}, "sha of the thing must be 64 hexadecimal digits"),
        ({"count": 256}, "count of the thing must be a whole number from 0 to 255, got 256"),
        ({"count": True}, "count of the thing must be a whole number"),
        ({"share": math.inf}, "share of the thing must be a finite number, got Infinity"),
        ({"share": "inf"}, "share of the thing must be a finite number"),
        ({"share": 10**400}, "share of the thing must be a finite number"),
        ({"big": 1}, "big of the thing must be true or false, got 1"),
        ({"is_big": True}, "is_big of the thing must be absent"),
        ({"colour": "green"}, "colour of the thing must be one of red, blue, got 'green'"),
        ({"kind": "c"}, "kind of the thing must be one of a, b"),
        ({"at": "2026-01-02"}, "at of the thing must be a moment with its offset"),
        ({"pairs": [[1]]}, r"pairs\[0\] of the thing must be a list of 2 items"),
        ({"pairs": [[1, 2, 3]]}, r"pairs\[0\] of the thing must be a list of 2 items"),
        ({"pairs": [[101, 2]]}, r"pairs\[0\] of the thing must be a pair of small numbers"),
        ({"by_name": {"p": {"first": 1}}}, "by_name.p of the thing must be an object with first, second"),
        ({"by_name": [["p", 1]]}, "by_name of the thing must be an object"),
        ({"shape": {"side": 2}}, "shape of the thing must be an object with type"),
        ({"shape": {"type": "line"}}, "shape.type of the thing must be one of circle, square"),
        ({"shape": {"type": "circle", "side": 2}}, "shape of the thing must be an object with radius"),
        ({"shape": {"type": "square", "side": 10}}, "shape.side of the thing must be a whole number from 1 to 9"),
        ({"colours": 1}, "colours of the thing must be absent"),
        ({"name": "never"}, "a thing must have another name"),
        ({"inner": [{"name": "x"}]}, r"inner\[0\] of the thing must be an object with"),
    ],
)
def test_other_documents_are_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(DataError, match=text):
        read_value(Thing, Part({**WRITTEN, **changes}, "thing"))


def test_what_a_class_refuses_has_its_place() -> None:
    document = {**WRITTEN, "inner": [{**WRITTEN, "name": "never"}]}
    with pytest.raises(DataError) as caught:
        read_value(Thing, Part(document, "thing"))
    assert (caught.value.where, caught.value.value, caught.value.allowed) == (
        "thing, inner[0]",
        "never",
        "any but never",
    )


def test_other_members_are_read_where_they_are_allowed() -> None:
    document = {"first": 1, "second": 2.0, "format": 1}
    with pytest.raises(DataError, match="format of the pair must be absent"):
        read_value(Pair, Part(document, "pair"))
    assert read_value(Pair, Part(document, "pair"), extra=("format",)) == Pair(1, 2.0)
    assert Derivation(with_others=True).read(Pair, Part(document, "pair")) == Pair(1, 2.0)


def test_pairs_and_infinity_are_options() -> None:
    @dataclass(frozen=True)
    class Log:
        until: Mapping[int, float]

    Log.__annotations__["until"] = Mapping[int, float]
    derived = Derivation(with_pairs=True, with_infinity=True)
    document = derived.document(Log({3: math.inf}))
    assert document == {"until": [[3, "inf"]]}
    assert derived.read(Log, Part(document, "log")) == Log({3: math.inf})
    with pytest.raises(DataError, match="until of the log must be a list that has each key once"):
        derived.read(Log, Part({"until": [[3, 1], [3, 2]]}, "log"))


def test_mutated_documents_are_read_or_refused() -> None:
    """Whatever is read is written as a document that is read as the same value."""
    draw = random.Random(34)
    texts = [
        json.dumps(document_of(one)).encode() for one in (thing(), thing(inner=(thing(), thing(label="q")), maybe=SHA))
    ]
    tokens = [b"null", b"-1", b'"', b"[]", b"{}", b"1e999", b"NaN", b"true", b'"inf"', b"1e400", b"\xff", b'"later":']
    read, errors = 0, []
    for _ in range(scaled(6000)):
        content = mutated(draw.choice(texts), draw, tokens=tokens, most=draw.choice((1, 6)))
        try:
            found = read_value(Thing, parse_document(content, "thing"))
        except DataError as error:
            errors.append(error)
        else:
            assert read_value(Thing, parse_document(json.dumps(document_of(found)), "thing")) == found
            read += 1
    assert read > 100
    assert len(errors) > 1000
    assert all(error.what and error.where for error in errors)
