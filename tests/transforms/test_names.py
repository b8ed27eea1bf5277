"""The one rule for names: the same wherever a name is given, for any Unicode text."""

from __future__ import annotations

import string
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.terminal.quantities import bytes_of
from trainer.job.control.messages import check_role
from trainer.job.launch.fleet_store import Submission
from trainer.scheduling.events import Role, RoleKind
from transforms import Model
from transforms.errors import DataError, InputError
from transforms.expressions.expression import int64
from transforms.names import allowed_names, check_name, is_name, is_whole_number
from warehouse.search.query import ComponentQuery
from warehouse.tables.hive_levels import parse_levels
from warehouse.tables.partitions import partition_range

LETTERS = string.ascii_letters + string.digits
NAMES = st.from_regex(r"[A-Za-z0-9](\.?[A-Za-z0-9_-])*\.?", fullmatch=True).filter(lambda text: len(text) <= 64)
#: Digits and letters of all scripts, and what looks like them.
TEXTS = st.text(st.characters(categories=["L", "N", "P", "M", "Z", "C"], max_codepoint=0x1FFFF), max_size=12) | NAMES


def is_sound(text: str) -> bool:
    """The rule, told another way."""
    return (
        0 < len(text) <= 128
        and all(letter in LETTERS + "_.-" for letter in text)
        and text[0] in LETTERS
        and ".." not in text
    )


@given(TEXTS)
@example("a..b")
@example("日志")
@example("log٣")
@example("ａ")
@example("a\n")
@example("a\u0000")
@example("..")
@example("")
@example("a" * 129)
def test_every_name_follows_one_rule(text):
    assert is_name(text) == is_sound(text)
    accepted = [
        _accepts(lambda: check_name(text, "a table")),
        _accepts(lambda: Model(text, client="c", label="l")),
        _accepts(lambda: Model("m", client=text, label="l")),
        _accepts(lambda: Model("m", client="c", label={text: "l", "other-label": "l"})),
        _accepts(lambda: Model("m", client="c", label="l").input(text, int64("n").hash_buckets(3))),
    ]
    assert set(accepted) == {is_sound(text)}
    short = is_sound(text) and len(text) <= 64
    assert _accepts(lambda: check_role(Role(RoleKind.HOST, text))) == short
    assert _accepts(lambda: Submission(text, 1, 0, ("train",), "/", "/")) == (short and text[0].isalpha())


def _accepts(make) -> bool:
    try:
        make()
    except (InputError, DataError):
        return False
    return True


@given(NAMES)
def test_a_name_is_one_folder_with_one_spelling(text):
    assert is_name(text)
    assert "/" not in text
    assert text not in {".", ".."}
    assert unicodedata.normalize("NFKC", text) == text == text.encode("ascii").decode()


@given(st.text(st.characters(categories=["Nd", "No", "Nl"]), min_size=1, max_size=8))
@example("٣")
@example("²")
@example("12")
def test_numbers_are_of_digits_0_to_9(text):
    """Python reads digits of other scripts, and calls some texts digits that it cannot read."""
    ascii_digits = all(letter in string.digits for letter in text)
    assert is_whole_number(text) == ascii_digits
    assert _accepts(lambda: bytes_of("--memory", f"{text}GiB")) == ascii_digits
    assert _accepts(lambda: ComponentQuery(operator=f"hash_buckets@{text}")) == ascii_digits
    if not ascii_digits:
        with pytest.raises(DataError):
            parse_levels(f"date=2026-01-01/hour={text}")
        with pytest.raises(DataError):
            partition_range(f"date=2026-01-0{text}")


def test_an_error_says_the_rule():
    with pytest.raises(InputError) as refused:
        check_name("a..b", "a table", where="--name")
    assert (refused.value.value, refused.value.allowed) == ("a..b", allowed_names())
    assert "'..'" in allowed_names(most=64)
    assert "64" in allowed_names(most=64)
