"""Candidates for a model's label, each with the expression to write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pipelines.inference.times import ID_NAME, spaced
from pipelines.log_schemas.columns import LogColumn
from transforms.types import DType

_LABEL_NAME = re.compile(
    r"(?i)(?:^|[_. -])(?:is_?)?(?:label|click|clicks|clicked|target|relevance|rating|conversion|converted|purchase|"
    r"purchased|bought|install|installed|grade)(?:$|[_. -])"
)
#: Columns of more values are counts or ids, whatever their name.
_MOST_GRADES = 100
_NUMBERS = (DType.INT64, DType.FLOAT32, DType.FLOAT64)
#: Pairs of texts, in small letters: the one that a label counts, and the other.
_ANSWERS = (("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("on", "off"), ("1", "0"))


def label_expression(column: LogColumn, counts: Mapping[str, int]) -> str:
    """The label of a column with these values, as ``label=`` of a model takes it; empty for a column that is no candidate.

    A boolean, or a number of 0 and 1, is its name in quotes; a text of two answers is compared with the positive one.
    """
    if column.separator is not None or column.is_list or column.is_json or len(counts) < 2:
        return ""
    name = json.dumps(column.name, ensure_ascii=False)
    if column.dtype is DType.STRING:
        return _answer(name, counts)
    if column.dtype is DType.BOOL or (column.dtype in _NUMBERS and _is_zero_or_one(counts)):
        return name
    if column.dtype not in _NUMBERS:
        return ""
    if len(counts) == 2 and column.dtype is DType.INT64 and all(re.fullmatch("-?[0-9]+", text) for text in counts):
        return f"hr.int64({name}) == {max(map(int, counts))}"
    is_named = _LABEL_NAME.search(spaced(column.name)) and not ID_NAME.search(spaced(column.name))
    return name if len(counts) == 2 or (is_named and len(counts) <= _MOST_GRADES) else ""


def _answer(name: str, counts: Mapping[str, int]) -> str:
    given = {text.lower() for text in counts}
    positive = next((yes for yes, no in _ANSWERS if given == {yes, no}), None)
    if positive is None:
        return ""
    if len(counts) == 2:
        spelled = next(text for text in counts if text.lower() == positive)
        return f"hr.text({name}) == {json.dumps(spelled)}"
    return f"hr.text({name}).lower() == {json.dumps(positive)}"


def _is_zero_or_one(counts: Mapping[str, int]) -> bool:
    try:
        return {float(text) for text in counts} == {0.0, 1.0}
    except ValueError:
        return False
