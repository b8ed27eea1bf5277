"""The layout of tables on terminals of any width.

A table has the first layout that fits: prose wrapped in its column; narrower gaps and column names on several lines; prose
below its row; each row as a block of names and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from headrace.terminal.printable import printable
from headrace.terminal.wrapping import wrapped

_GAP, _NARROW_GAP = "   ", "  "
_LEAST_PROSE_CELLS = 36
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    to_the_right: bool
    prose: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under column names. Only prose is wrapped; names and numbers are not."""

    columns: tuple[_Column, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines of the table."""
        if self.title:
            yield Text(self.title, style="bold")
        yield from self._lines(options.max_width)

    def _lines(self, width: int) -> Iterator[Text]:
        everything = tuple(range(len(self.columns)))
        prose = tuple(place for place in everything if self.columns[place].prose)
        fixed = tuple(place for place in everything if not self.columns[place].prose)
        tries = [(everything, ()), (fixed, prose)] if prose and fixed else [(everything, ())]
        for places, beneath in tries:
            for gap, whole_names in ((_GAP, True), (_NARROW_GAP, False)):
                widths = self._fitting(places, width, gap, whole_names=whole_names)
                if widths:
                    yield from self._table(places, widths, gap, beneath, width)
                    return
        yield from self._blocks(width)

    def _fitting(self, places: Sequence[int], width: int, gap: str, *, whole_names: bool) -> list[int]:
        """Widths at which columns fit, prose wrapped if need be; none if there are no such widths."""
        names = [
            self.columns[place].name if whole_names else max(self.columns[place].name.split(" "), key=cell_len)
            for place in places
        ]
        least = [cell_len(name) for name in names]
        widths = [
            max([size, *(_widest(row[place]) for row in self.rows)]) for place, size in zip(places, least, strict=True)
        ]
        over = sum(widths) + len(gap) * (len(widths) - 1) - width
        wraps = [at for at, place in enumerate(places) if self.columns[place].prose]
        for at in sorted(wraps, key=lambda at: -widths[at]):
            given = min(max(over, 0), widths[at] - min(widths[at], max(_LEAST_PROSE_CELLS, least[at])))
            widths[at] -= given
            over -= given
        return widths if over <= 0 else []

    def _table(
        self, places: Sequence[int], widths: Sequence[int], gap: str, beneath: Sequence[int], width: int
    ) -> Iterator[Text]:
        columns = [self.columns[place] for place in places]
        names = [wrapped(column.name, size) for column, size in zip(columns, widths, strict=True)]
        height = max(map(len, names))
        for line in _lines_of([[""] * (height - len(name)) + name for name in names], widths, columns, gap):
            yield Text(line, style="bold")
        yield Text("─" * (sum(widths) + len(gap) * (len(widths) - 1)), style="dim")
        for row in self.rows:
            cells = [wrapped(row[place], size) for place, size in zip(places, widths, strict=True)]
            yield from map(Text, _lines_of(cells, widths, columns, gap))
            for place in beneath:
                if row[place] not in ("", "-"):
                    for line in wrapped(f"{self.columns[place].name}: {row[place]}", width - len(_INDENT)):
                        yield Text(_INDENT + line, style="dim")

    def _blocks(self, width: int) -> Iterator[Text]:
        for row in self.rows:
            named = [(column.name, cell) for column, cell in zip(self.columns, row, strict=True) if cell]
            yield from _pairs(named, width)
            yield Text("")


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one pair per line; long values are wrapped."""

    pairs: tuple[tuple[str, str], ...]
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines of the pairs."""
        if self.title:
            yield Text(self.title, style="bold")
        yield from _pairs(self.pairs, options.max_width)


def _pairs(pairs: Sequence[tuple[str, str]], width: int) -> Iterator[Text]:
    names = max((cell_len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        for number, line in enumerate(wrapped(value, max(width - names - 2, _LEAST_PROSE_CELLS // 2))):
            yield Text(f"{_padded('' if number else name, names)}  {line}".rstrip())


def _lines_of(
    cells: Sequence[Sequence[str]], widths: Sequence[int], columns: Sequence[_Column], gap: str
) -> Iterator[str]:
    """The terminal lines of one row, whose cells may have several lines each."""
    for number in range(max(map(len, cells), default=0)):
        padded = (
            _padded(cell[number] if number < len(cell) else "", width, to_the_right=column.to_the_right)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        )
        yield gap.join(padded).rstrip()


def _padded(text: str, width: int, *, to_the_right: bool = False) -> str:
    spaces = " " * max(width - cell_len(text), 0)
    return spaces + text if to_the_right else text + spaces


def _widest(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Grid:
    """A table. A column name that ends in ``>`` is aligned right; one that ends in ``*`` holds prose."""
    named = tuple(_Column(name.rstrip(">*"), name.endswith(">"), name.endswith("*")) for name in columns)
    cells = (
        tuple(printable(cell, lines=column.prose) for cell, column in zip(row, named, strict=True)) for row in rows
    )
    return Grid(named, tuple(cells), title)


def facts(pairs: Iterable[tuple[str, str]], title: str = "") -> Facts:
    """Names and values, one pair per line."""
    return Facts(tuple(pairs), title)
