from __future__ import annotations

import math
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from headrace.cli.plain_values import take_plain_values

app = typer.Typer(add_completion=False)
_FOUND: list[dict[str, Any]] = []


@app.command()
def command(
    name: str,
    rest: Annotated[list[str] | None, typer.Argument()] = None,
    text: str = "",
    maybe: Annotated[str | None, typer.Option()] = None,
    whole: Annotated[int, typer.Option(min=0, max=9)] = 3,
    number: float = 0.5,
    many: Annotated[list[int] | None, typer.Option()] = None,
    flag: bool = False,
    upper: Annotated[str, typer.Option(parser=str.upper)] = "a",
) -> None:
    _FOUND.append(dict(locals()))


def result(arguments: list[str], *, plain: bool) -> object:
    """What the command got, or its error."""
    made = get_command(app)
    if plain:
        take_plain_values(made)
    _FOUND.clear()
    try:
        made.main(arguments, standalone_mode=False)
    except Exception as error:
        return type(error), str(error)
    return [{name: (type(value), value) for name, value in each.items()} for each in _FOUND]


words = st.text(st.characters(exclude_characters="\0"), max_size=8) | st.sampled_from(["\udcff", "7", "-1", "x", "1e3"])
options = st.sampled_from(["--text", "--maybe", "--whole", "--number", "--many", "--upper"])


@given(st.lists(words | options | st.sampled_from(["--flag", "--no-flag"]), max_size=8))
def test_values_and_errors_are_those_of_typer(arguments: list[str]) -> None:
    assert result(arguments, plain=True) == result(arguments, plain=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["a"],
        ["é", "b", "ü", "--text", "ß", "--maybe", "x", "--whole", "9", "--number", "2", "--many", "1", "--many", "2", "--flag", "--upper", "é"],
        ["a", "--whole", "10"],
        ["a", "--whole", "one"],
        ["a", "--many", "x"],
        ["\udcff"],
        [],
    ],
)  # fmt: skip
def test_examples_are_those_of_typer(arguments: list[str]) -> None:
    found = result(arguments, plain=True)
    assert found == result(arguments, plain=False)
    assert not (isinstance(found, list) and found and math.isnan(found[0]["number"][1]))
