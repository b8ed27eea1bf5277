"""Infer the type and format of one column of texts, with its uncertainties."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pipelines.cells.typed_cells import SPACES, typed_cells
from pipelines.inference.labels import label_expression
from pipelines.inference.times import ENOUGH, TimeReading, read_as_times
from pipelines.log_schemas.columns import LogColumn
from transforms.types import DType

#: Texts that mean a missing value in a column of another type than text.
NULLS = frozenset(
    {"NULL", "null", "Null", "NA", "N/A", "n/a", "NaN", "nan", "None", "none", "\\N", "-", "--", "?", "nil", "#N/A"}
)
#: Texts that mean a missing value in any column.
_SURE_NULLS = frozenset({"NULL", "\\N"})
_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_INFINITE = re.compile(r"(?i)[-+]?(?:inf|infinity)")
_WITH_THOUSANDS = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})*(?:\.[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+")
_SEPARATORS = ("|", "\x02", ";", ",", "^")
_ITEM = re.compile(r"[\w.:/+#&'-]{1,60}(?: [\w.:/+#&'-]{1,40}){0,2}")
_LISTS_SHARE = 0.3
#: The share of integers with leading zeros from which they are codes.
_CODES_SHARE = 0.1
#: Integers of more digits are ids or amounts beyond what float64 holds exactly.
_EXACT_DIGITS = 15
#: float64 tells decimals of up to 15 digits apart, and writes any of its numbers in at most 17.
_FLOAT_DIGITS = 17
#: Two ids that a point joins, such as Google Analytics' client ids, have at least these digits before the point.
_ID_DIGITS = 7


@dataclass(frozen=True)
class ColumnGuess:
    """The inferred properties of a column.

    Attributes:
        column: its entry in the schema file.
        rows: the rows of the sample.
        empty_rows: its rows without a text.
        spelled: its texts that may mean a missing value, with their rows.
        nulls: those of them that do.
        unsure: sentences about uncertain choices.
        examples: some of its values.
        distinct: the number of distinct texts in the sample.
        label: the expression of a model's label; empty for a column that is no candidate.
        time: its values as times; None if fewer than half of them are.
    """

    column: LogColumn
    rows: int = 0
    empty_rows: int = 0
    spelled: Mapping[str, int] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()
    unsure: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    distinct: int = 0
    label: str = ""
    time: TimeReading | None = None

    def missing_rows(self, nulls: Sequence[str]) -> int:
        """The rows without a value, if ``nulls`` are the spellings of a missing value of the log."""
        return self.empty_rows + sum(count for text, count in self.spelled.items() if text in nulls)

    def without(self, nulls: Sequence[str]) -> ColumnGuess:
        """The same if ``nulls``, of which other columns have some, are no values of this one."""
        gone = {text for text in self.spelled if text in nulls and text not in self.nulls}
        examples = tuple(example for example in self.examples if example not in gone)
        return replace(self, distinct=self.distinct - len(gone), examples=examples) if gone else self

    def missing_share(self, nulls: Sequence[str]) -> float:
        """The share of the rows without a value."""
        return self.missing_rows(nulls) / max(self.rows, 1)


def guess_column(
    name: str, texts: Sequence[str | None], range_us: tuple[int, int], *, is_named_time: bool = False
) -> ColumnGuess:
    """Infer a column from its texts, one per row; None is a missing value.

    ``range_us``: the plausible event times; ``is_named_time``: whether the user says that the column holds the event time.
    """
    given = [text for text in texts if text]
    trimmed = [text.strip(SPACES) for text in given]
    filled = [text for text in trimmed if text and text not in NULLS]
    time = read_as_times(name, filled, range_us, is_named=is_named_time) if filled else None
    guess = _typed(name, filled, time)
    if guess is None:
        guess = guess_words(name, texts)
    else:
        column = replace(guess.column, trim=True) if trimmed != given else guess.column
        spelled = Counter(text for text in trimmed if text in NULLS)
        guess = _counted(replace(guess, column=column), len(texts), Counter(filled), spelled, frozenset(spelled))
    return replace(guess, time=time, unsure=(*guess.unsure, *_doubts(guess, filled, time)))


def guess_words(name: str, texts: Sequence[str | None], *, with_lists: bool = True) -> ColumnGuess:
    """The column as texts, or if ``with_lists`` as lists of short items that a separator joins."""
    given = [text for text in texts if text]
    values = Counter(text for text in given if text not in _SURE_NULLS)
    spelled = Counter(text for text in given if text in NULLS)
    plain = ColumnGuess(LogColumn(name, DType.STRING))
    guess = (_lists(name, list(values.elements())) if with_lists else None) or plain
    return _counted(guess, len(texts), values, spelled, _SURE_NULLS.intersection(spelled))


def _counted(
    guess: ColumnGuess, rows: int, values: Counter[str], spelled: Counter[str], nulls: frozenset[str]
) -> ColumnGuess:
    """The guess with its figures; ``values``: the texts that are values of the column, with their rows."""
    empty_rows = rows - values.total() - sum(count for text, count in spelled.items() if text not in values)
    examples = tuple(dict.fromkeys(" ".join(text.split())[:40] for text, _ in values.most_common(3)))
    return replace(
        guess, rows=rows, empty_rows=empty_rows, spelled=dict(spelled), nulls=nulls, examples=examples, distinct=len(values),
        label=label_expression(guess.column, values),
    )  # fmt: skip


def _doubts(guess: ColumnGuess, filled: Sequence[str], time: TimeReading | None) -> tuple[str, ...]:
    if not filled:
        if not guess.spelled:
            return ("every value in the sample is missing",)
        return (f"every value in the sample is empty or {next(iter(guess.spelled))!r}, which may mean a missing one",)
    if time is not None and guess.column.dtype is DType.STRING and time.strength == "sure":
        return (
            f"{time.read_rows:,} of {len(filled):,} values are times ({time.form}): fewer than 99 %, so they are kept as text",
        )
    return ()


def _typed(name: str, filled: Sequence[str], time: TimeReading | None) -> ColumnGuess | None:
    """The column as booleans, times or numbers; None if it is none of these."""
    counts = Counter(filled)
    if not counts:
        return None
    if all(text.lower() in ("true", "false") for text in counts) or set(counts) == {"0", "1"}:
        return ColumnGuess(LogColumn(name, DType.BOOL))
    if time is not None and time.strength == "sure" and time.read_rows >= ENOUGH * len(filled):
        return ColumnGuess(time.column, unsure=(*time.unsure, *_misfits(time.column, counts)))
    return _number(name, counts)


def _number(name: str, counts: Counter[str]) -> ColumnGuess | None:
    rows = counts.total()
    whole = Counter({text: count for text, count in counts.items() if _INTEGER.fullmatch(text)})
    if whole.total() >= ENOUGH * rows:
        return _integers(name, counts, whole)
    numbers = [text for text in counts if _FLOAT.fullmatch(text) or _INFINITE.fullmatch(text)]
    if sum(counts[text] for text in numbers) >= ENOUGH * rows:
        pairs = sum(counts[text] for text in beyond_float(numbers) if len(text.partition(".")[0]) >= _ID_DIGITS)
        if pairs * 2 > rows:
            unsure = (
                f"{pairs:,} of {rows:,} numbers have more digits than float64 keeps, as ids do: they are kept as text"
            )
            return ColumnGuess(LogColumn(name, DType.STRING), unsure=(unsure,))
        column = LogColumn(name, DType.FLOAT64, non_finite=any(_INFINITE.fullmatch(text) for text in numbers))
        return ColumnGuess(column, unsure=(*_rounded(counts, numbers), *_misfits(column, counts)))
    return _number_as_written(name, counts)


def _integers(name: str, counts: Counter[str], whole: Counter[str]) -> ColumnGuess:
    zeros = sum(
        count for text, count in whole.items() if len(text.lstrip("-")) > 1 and text.lstrip("-").startswith("0")
    )
    if zeros > _CODES_SHARE * whole.total():
        return ColumnGuess(LogColumn(name, DType.STRING), unsure=("digits with leading zeros are kept as text",))
    beyond = sum(count for text, count in whole.items() if not -(2**63) <= int(text[:40]) < 2**63)
    lengths = sorted(len(text.lstrip("-")) for text in whole.elements())
    if beyond > (1 - ENOUGH) * whole.total() or (beyond and lengths[len(lengths) // 2] > _EXACT_DIGITS):
        unsure = f"{beyond:,} of {whole.total():,} integers are beyond int64, up to {lengths[-1]} digits: they are kept as text"
        return ColumnGuess(LogColumn(name, DType.STRING), unsure=(unsure,))
    column = LogColumn(name, DType.INT64)
    lost = (f"{zeros:,} of {whole.total():,} integers have leading zeros, which int64 drops",) if zeros else ()
    return ColumnGuess(column, unsure=(*lost, *_misfits(column, counts)))


def beyond_float(numbers: Iterable[str]) -> list[str]:
    """The numbers of which float64 keeps the first digits only."""
    return [text for text in numbers if (_INTEGER.fullmatch(text) and len(text.lstrip("-0")) > _EXACT_DIGITS)
            or len(re.sub(r"[eE].*|[^0-9]", "", text).strip("0")) > _FLOAT_DIGITS]  # fmt: skip


def _rounded(counts: Counter[str], numbers: Sequence[str]) -> tuple[str, ...]:
    """A doubt about numbers of which float64 keeps the first digits only."""
    long = beyond_float(numbers)
    if not long:
        return ()
    rows = sum(counts[text] for text in long)
    return (
        f'{rows:,} numbers such as {long[0][:40]} have more digits than float64 keeps; "type": "string" keeps them all',
    )


def _number_as_written(name: str, counts: Counter[str]) -> ColumnGuess | None:
    """Numbers with commas between thousands, or a decimal comma."""
    marked = [text for text in counts if _WITH_THOUSANDS.fullmatch(text)]
    if sum(counts[text] for text in marked) >= ENOUGH * counts.total() and any("," in text for text in counts):
        fraction = any("." in text for text in marked)
        column = LogColumn(name, DType.FLOAT64 if fraction else DType.INT64, thousands=",")
        return ColumnGuess(column, unsure=("the commas are read as separators of thousands", *_misfits(column, counts)))
    marked = [text for text in counts if _DECIMAL_COMMA.fullmatch(text) or _INTEGER.fullmatch(text)]
    if sum(counts[text] for text in marked) >= ENOUGH * counts.total():
        thousands = "." if any("." in text for text in marked) else ""
        column = LogColumn(name, DType.FLOAT64, decimal=",", thousands=thousands)
        return ColumnGuess(column, unsure=("the comma is read as the decimal comma", *_misfits(column, counts)))
    return None


def _misfits(column: LogColumn, counts: Counter[str]) -> tuple[str, ...]:
    """A doubt about the values that an import rejects."""
    texts = [text.encode("utf-8", "replace").decode() for text in counts]
    bad = typed_cells(pa.array(texts, pa.string()), column)[1]
    odd = [text for text, is_bad in zip(counts, bad.tolist(), strict=True) if is_bad]
    if not odd:
        return ()
    rows = sum(counts[text] for text in odd)
    what = "time" if column.dtype is DType.TIMESTAMP else str(column.dtype)
    return (f"{rows:,} of {counts.total():,} values are no {what}, such as {odd[0][:40]!r}: those rows are rejected",)


def _lists(name: str, texts: Sequence[str]) -> ColumnGuess | None:
    """A column of lists; None if the texts are none."""
    for separator in _SEPARATORS:
        holding = [text for text in texts if separator in text]
        if len(holding) < _LISTS_SHARE * len(texts) or not holding:
            continue
        items = [item for text in texts for item in text.split(separator) if item]
        if not items or not all(_ITEM.fullmatch(item) for item in items[:2_000]):
            continue
        column = LogColumn(name, _item_type(items), separator=separator)
        unsure = (
            f'the values are read as lists separated by {separator!r}; without "separator" they are single texts',
        )
        return ColumnGuess(column, unsure=unsure)
    return None


def _item_type(items: Sequence[str]) -> DType:
    """The type that all items have by the rules of an import."""
    for dtype, form in ((DType.INT64, _INTEGER), (DType.FLOAT64, _FLOAT)):
        if all(form.fullmatch(item) for item in items):
            texts = pa.array([item.encode("utf-8", "replace").decode() for item in dict.fromkeys(items)], pa.string())
            if not typed_cells(texts, LogColumn("item", dtype))[1].any():
                return dtype
    return DType.STRING
