from __future__ import annotations

import pytest

from trainer.options.process_range import ProcessRange
from transforms.errors import InputError


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("1", 1, 1), ("8", 8, 8), ("04", 4, 4), ("2..8", 2, 8), ("3..3", 3, 3), ("1..9999", 1, 9999)],
)
def test_a_number_is_fixed_and_a_range_has_two(text: str, least: int, most: int) -> None:
    found = ProcessRange.parse(text, "--readers")
    assert (found.least, found.most, found.is_fixed) == (least, most, least == most)
    assert ProcessRange.parse(str(found), "--readers") == found


@pytest.mark.parametrize(
    "text", ["", "0", "0..3", "3..2", "-1", "1..", "..2", "1...3", "1..2..3", "one", "1.5", "12345", "²", "1 ..2"]
)
def test_another_text_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(InputError, match="a number, or a range") as refused:
        ProcessRange.parse(text, "--caught-up-readers")
    assert (refused.value.where, refused.value.value) == ("--caught-up-readers", text)
    assert "2..8" in str(refused.value.allowed)
