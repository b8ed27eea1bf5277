"""Detect the format of a text: JSON lines or delimited cells, the delimiter, quotes, escapes, the preamble and the header.

Candidates are compared by the records and cells into which an import would split the text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipelines.errors import UnknownFormat
from pipelines.log_schemas.columns import LogFormat
from pipelines.parsing.blocks import LineBlock, LongLine
from pipelines.parsing.cell_syntax import Syntax
from pipelines.parsing.delimited_lines import split_line
from pipelines.parsing.quoted_records import whole_records

_DELIMITERS = ("\t", ",", ";", "|", "\x01", "^", " ")
_SCORED_ROWS = 500
_SCORED_BYTES = 1 << 18
_LEAST_SHARE = 0.6
_NAME = re.compile(r"[^\W\d][\w .:/()%#-]{0,63}")
#: A name in a commented header: prose has spaces.
_STRICT_NAME = re.compile(r"[^\W\d][\w.:/()%-]{0,63}")
_VALUE = re.compile(r"[-+]?[0-9][0-9.,:/| TZ+-]*|(?i:true|false)")
_NO_NAMES = frozenset({"true", "false", "null", "none", "nan", "na", "n/a", "nil"})
#: The beginnings of lines before the header: comments, and the delimiter for a spreadsheet.
_PREAMBLES = ("#", "//", "sep=")
#: The share of later lines that begin like a preamble, above which they are rows.
_MOST_COMMENTED = 0.1


@dataclass(frozen=True)
class Dialect:
    """The syntax of rows.

    Attributes:
        format: tsv, csv or jsonl.
        syntax: how a record is split into cells.
        width: the cells of a row.
        header: the names in the first line; None if it is a row.
        commented: the names in the last line of the preamble; None if there are none.
        preamble: the beginning of the lines before the header; empty for none.
        trailing: whether a delimiter follows the last cell of some rows.
        unsure: sentences about other possibilities.
    """

    format: LogFormat
    syntax: Syntax
    width: int = 1
    header: tuple[str, ...] | None = None
    commented: tuple[str, ...] | None = None
    preamble: str = ""
    trailing: bool = False
    unsure: tuple[str, ...] = ()


def is_json_lines(text: str, where: str) -> bool:
    """Whether most lines are JSON objects. Raises :class:`UnknownFormat` for a JSON document of many lines."""
    lines = [line for line in text[:_SCORED_BYTES].splitlines()[:200] if line.strip()]
    if not lines:
        return False
    if lines[0].lstrip().startswith("[") and not _is_object(lines[0]) and _looks_like_json(lines):
        raise UnknownFormat("a JSON log must hold one object per line, got one list", where=where, value=lines[0][:60],
                            allowed="JSON lines", next_step=f"rewrite it: jq -c '.[]' {where} > rows.jsonl")  # fmt: skip
    objects = sum(_is_object(line) for line in lines)
    if lines[0].strip() == "{" and objects == 0:
        raise UnknownFormat("a JSON log must hold one object per line, got one document", where=where, value="{",
                            allowed="JSON lines", next_step=f"rewrite it: jq -c '.' {where} > rows.jsonl")  # fmt: skip
    return objects * 2 > len(lines)


def _is_object(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _looks_like_json(lines: Sequence[str]) -> bool:
    rest = lines[0].strip().lstrip("[").strip() or (lines[1].strip() if len(lines) > 1 else "")
    return rest.startswith(("{", "]"))


def detect_dialect(text: bytes, where: str) -> Dialect:
    """The dialect of a delimited text, from its first records in UTF-8.

    Raises :class:`UnknownFormat` for rows that are wider or narrower than the header.
    """
    preamble, lines, body = _split_preamble(text)
    dialect = _by_cells(body)
    if preamble:
        commented = _commented_names(lines, dialect, preamble)
        if commented is None and _is_row(lines, dialect):
            preamble, body = "", text
            dialect = _by_cells(body)
        else:
            note = f"the first lines, which begin with {preamble!r}, are skipped in every file"
            dialect = replace(dialect, preamble=preamble, unsure=(*dialect.unsure, note), commented=commented)
    dialect = _with_header(body, dialect, where)
    return dialect if dialect.header is None else replace(dialect, commented=None)


def split_rows(text: bytes, syntax: Syntax) -> list[list[str]]:
    """The first records of a text as lists of cells, without blank lines; a broken record is one cell."""
    rows: list[list[str]] = []
    for record in _records(text, syntax):
        cells = split_line(record, syntax)
        rows.append([cell.decode("utf-8", "replace") for cell in ([record] if cells is None else cells)])
        if len(rows) == _SCORED_ROWS:
            break
    return rows


def _records(text: bytes, syntax: Syntax) -> Iterator[bytes]:
    blocks: Iterator[LineBlock | LongLine] = iter([LineBlock(1, text)] if text else [])
    if syntax.quoted or syntax.escape:
        blocks = whole_records(blocks, syntax, len(text))
    for block in blocks:
        if isinstance(block, LineBlock):
            yield from (record.removesuffix(b"\r") for record in block.each() if record.strip(b" \t\r"))


def _split_preamble(text: bytes) -> tuple[str, list[bytes], bytes]:
    """The beginning of the first lines that hold no row, these lines, and the text after them."""
    lines = text[:_SCORED_BYTES].split(b"\n")
    first = next((line for line in lines if line.strip()), b"")
    start = next((one for one in _PREAMBLES if first.startswith(one.encode())), "")
    if not start:
        return "", [], text
    mark, leading = start.encode(), 0
    while leading < len(lines) and (lines[leading].startswith(mark) or not lines[leading].strip()):
        leading += 1
    later = [line for line in lines[leading:] if line.strip()]
    if not later or sum(line.startswith(mark) for line in later) > _MOST_COMMENTED * len(later):
        return "", [], text
    skipped_bytes = sum(len(line) + 1 for line in lines[:leading])
    return start, [line for line in lines[:leading] if line.strip()], text[skipped_bytes:]


def _commented_names(lines: Sequence[bytes], dialect: Dialect, preamble: str) -> tuple[str, ...] | None:
    """The names of the columns in the last line of a preamble."""
    line = lines[-1].decode("utf-8", "replace").removeprefix(preamble).strip().removeprefix("Fields:").strip()
    names = tuple(cell.strip() for cell in line.split(dialect.syntax.delimiter)) if line else ()
    named = len(names) == dialect.width and len(set(names)) == len(names) and all(map(_STRICT_NAME.fullmatch, names))
    return names if named and (len(names) > 1 or dialect.width == 1) else None


def _is_row(lines: Sequence[bytes], dialect: Dialect) -> bool:
    """Whether the only line of a preamble has the cells of a row, some of them values."""
    cells = split_line(lines[-1].removesuffix(b"\r"), dialect.syntax)
    texts = [cell.decode("utf-8", "replace") for cell in cells or ()]
    return len(lines) == 1 and len(texts) == dialect.width > 1 and any(map(_VALUE.fullmatch, texts))


def _by_cells(text: bytes) -> Dialect:
    """The delimiter that splits the most records into equally many cells as the header, with quotes and escapes."""
    text = text[: text.rfind(b"\n", 0, _SCORED_BYTES) + 1 or len(text)]
    found = [_best_split(text, delimiter) for delimiter in _DELIMITERS]
    fitting = [split for split in found if split.width > 1 and split.share >= _LEAST_SHARE]
    if not fitting:
        return Dialect(
            "csv",
            _best_split(text, ",").syntax,
            unsure=("no delimiter splits the lines into equally many cells: each line is read as one column",),
        )
    best = max(fitting, key=lambda split: split.score)  # of equal ones the first
    return Dialect("tsv" if best.syntax.delimiter == "\t" else "csv", best.syntax, best.width)


@dataclass(frozen=True)
class _Split:
    """The first rows of a text, split by a syntax."""

    syntax: Syntax
    rows: list[list[str]]

    @property
    def width(self) -> int:
        """The most frequent number of cells."""
        widths = Counter(map(len, self.rows))
        return max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))[0]

    @property
    def share(self) -> float:
        """The share of the rows that have this number of cells."""
        return sum(len(row) == self.width for row in self.rows) / max(len(self.rows), 1)

    @property
    def score(self) -> float:
        """The share, and for close ones: names in the header for the cells, cells that are values, and no space."""
        width = self.width
        has_header = len(self.rows[0]) > 1 and abs(len(self.rows[0]) - width) <= 1
        cells = [cell for row in self.rows if len(row) == width for cell in row]
        values = sum(_VALUE.fullmatch(cell.strip()) is not None for cell in cells) / max(len(cells), 1)
        return round(self.share + 0.1 * has_header + 0.05 * values - 0.15 * (self.syntax.delimiter == " "), 2)


def _best_split(text: bytes, delimiter: str) -> _Split:
    """The rows by the syntax with this delimiter that gives the most rows of equal width."""
    plain = _split(text, delimiter, "")
    if b"\\" not in text:
        return plain
    escaped = _split(text, delimiter, "\\")
    is_same = escaped.share == plain.share and not _changes_cells(text, plain, escaped)
    return plain if escaped.share < plain.share or is_same else escaped


def _split(text: bytes, delimiter: str, escape: str) -> _Split:
    syntax = Syntax(delimiter, _is_quoted(text, delimiter, escape), escape)
    return _Split(syntax, split_rows(text, syntax))


def _changes_cells(text: bytes, plain: _Split, escaped: _Split) -> bool:
    """Whether an escape before a quote or a delimiter changes a row; doubled escapes alone may be text."""
    if plain.syntax.quoted != escaped.syntax.quoted:
        return True
    special = re.compile(rb'\\["' + re.escape(plain.syntax.delimiter.encode()) + rb"]")
    return special.search(text) is not None and plain.rows != escaped.rows


def _is_quoted(text: bytes, delimiter: str, escape: str) -> bool:
    """Whether any cell begins and ends with a quote."""
    mark = re.escape(delimiter.encode())
    inner = rb'(?:[^"\\]|""|\\.)*' if escape else rb'(?:[^"]|"")*'
    return (
        re.search(
            rb"(?:^|" + mark + rb')"' + inner + rb'"(?=\r?$|' + mark + rb")", text[: 1 << 17], re.MULTILINE | re.DOTALL
        )
        is not None
    )


def _with_header(text: bytes, dialect: Dialect, where: str) -> Dialect:
    every = [
        row for row in split_rows(text[:_SCORED_BYTES], dialect.syntax) if len(row) == 1 or any(map(str.strip, row))
    ]
    if not every:
        return dialect
    first, later = every[0], every[1:]
    names = _header_names(first, later)
    if names is None:
        return _fitted(dialect, every, _usual(every, dialect.width))
    headed = replace(dialect, header=names)
    headed = _fitted(headed, later, len(names))
    headed = replace(headed, unsure=(*headed.unsure, *_unnamed(names)))
    if len(first) > len(names):
        headed = replace(headed, trailing=True)
    rest = [row for row in later if len(row) in (len(names), len(names) + headed.trailing)]
    if rest and any(_share_of_values([row[at] for row in rest]) > 0.8 for at in range(len(names))):
        return headed
    if not rest and later:
        raise UnknownFormat("the rows must have as many cells as the header", where=where,
                            value=f"{dialect.width} cells in most rows, {len(names)} names in the header",
                            allowed="one name per cell; a delimiter after the last cell is accepted",
                            next_step="name every column in the header, or quote the values that hold the delimiter")  # fmt: skip
    again = any(row[at] == name for row in rest for at, name in enumerate(names))
    known = any(re.search(r"(?i)(^|_)(id|name|time|date|label|query|title|url|type|count)$", name) for name in names)
    if rest and (again or not known):
        unsure = 'the first line may be a header: then write "header": true, and correct the names'
        return replace(_fitted(dialect, every, _usual(every, dialect.width)), unsure=(*dialect.unsure, unsure))
    unsure = 'the first line is read as a header; if it is a row, write "header": false'
    return replace(headed, unsure=(*headed.unsure, unsure))


def _header_names(first: Sequence[str], later: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """The names of the columns if the first row holds names; without an empty one after the last delimiter."""
    names = [cell.strip() for cell in first]
    if len(names) > 1 and not names[-1] and not any(row[-1].strip() for row in later if len(row) == len(names)):
        names = names[:-1]
    # A column of row numbers often has no name.
    given = names[not names[0] : len(names) - (len(names) > 1 and not names[-1])]
    named = bool(given) and all(map(_NAME.fullmatch, given)) and len(set(names)) == len(names)
    return tuple(names) if named and not _NO_NAMES.intersection(map(str.lower, names)) else None


def _unnamed(names: Sequence[str]) -> tuple[str, ...]:
    if all(names):
        return ()
    return (f"column {names.index('') + 1} has no name in the header and is skipped",)


def _usual(rows: Sequence[Sequence[str]], width: int) -> int:
    """The width of rows without a header: one less than ``width`` if a last, empty cell is absent in some rows."""
    whole = [row for row in rows if len(row) == width]
    narrower = sum(len(row) == width - 1 for row in rows)
    has_delimiters = width > 2 and narrower * 100 >= len(rows) and not any(row[-1].strip() for row in whole)
    return width - 1 if has_delimiters else width


def _fitted(dialect: Dialect, rows: Sequence[Sequence[str]], width: int) -> Dialect:
    """The dialect with rows of ``width`` cells, and whether a delimiter follows the last cell of some of them."""
    beyond = [row for row in rows if len(row) == width + 1]
    if not beyond or any(row[-1] for row in beyond):
        return replace(dialect, width=width, trailing=False)
    unsure = f"a delimiter follows the last cell of rows: they are read as {width} cells"
    return replace(dialect, width=width, trailing=True, unsure=(*dialect.unsure, unsure))


def _share_of_values(cells: Sequence[str]) -> float:
    """The share of filled cells that are numbers, times or booleans, unlike names."""
    filled = [cell for cell in cells if cell.strip() and cell.strip().lower() not in _NO_NAMES - {"true", "false"}]
    return sum(bool(_VALUE.fullmatch(cell.strip())) for cell in filled) / len(filled) if filled else 0.0
