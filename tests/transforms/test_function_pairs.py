"""No two functions that differ in what they compute are accepted with one fingerprint; every refusal names its cause."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.transforms.function_pairs import BODY, PAIRS
from transforms.functions import Unfingerprintable

HEAD = """
import headrace as hr
import pyarrow as pa
import pyarrow.compute as pc
"""
TAIL = """

try:
    made = hr.op(result="float64")(f)
finally:
    if "undo" in globals():
        undo()
"""


def declared(folder: Path, text: str) -> Any:
    """The operator that a file makes, or how it is refused."""
    path = folder / "features.py"
    path.write_text(HEAD + text + BODY + TAIL, encoding="utf-8", errors="surrogatepass")
    try:
        return runpy.run_path(str(path), run_name="__headrace_models__")["made"]
    except Unfingerprintable as error:
        return error


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 200


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_told_apart_or_refused(tmp_path: Path, name: str) -> None:
    text, one, other = PAIRS[name]
    assert one != other
    found = [declared(tmp_path, text.replace("@@", variant)) for variant in (one, other)]
    for each in found:
        if isinstance(each, Unfingerprintable):
            assert each.function == "f"
            assert each.variable or each.attribute or each.value, each.what
            assert each.next_step
    accepted = [each.bundle for each in found if not isinstance(each, Unfingerprintable)]
    assert len(accepted) < 2 or accepted[0] != accepted[1]
