"""Read the cells of a block of records with Arrow, where it splits them as :func:`~pipelines.parsing.delimited_lines.split_line` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from pipelines.parsing.blocks import LineBlock, only_line_ends
from pipelines.parsing.cell_syntax import Syntax, masked, without_escapes
from pipelines.parsing.delimited_lines import Layout, quoted_plainly

_BOM = b"\xef\xbb\xbf"


def plain_cells(block: LineBlock, layout: Layout) -> pa.Table | None:
    """The cells of a block that Arrow's reader splits as :func:`split_line` does; None for other blocks."""
    data = plain_data(block, layout.syntax)
    if data is None:
        return None
    many_lines = block.starts is not None
    if layout.trailing:
        beyond = str(layout.width)
        wider = replace(layout, width=layout.width + 1, positions=(*layout.positions, layout.width))
        raw = read_cells(data, wider, many_lines)
        if raw is not None and not pc.any(pc.not_equal(raw.column(beyond), b"")).as_py():
            return raw
    return read_cells(data, layout, many_lines)


def plain_data(block: LineBlock, syntax: Syntax) -> bytes | None:
    """The block without escapes, if Arrow's reader splits it into the same cells as :func:`split_line`."""
    data = block.data
    plain = masked(data, syntax)
    if plain is None or not only_line_ends(data):
        return None
    if not syntax.quoted or block.plain or (block.starts is None and quoted_plainly(plain, syntax.delimiter)):
        return without_escapes(data, plain, syntax)
    return None


def read_cells(
    data: bytes,
    layout: Layout,
    many_lines: bool,
    types: Mapping[str, pa.DataType] | None = None,
    null: Sequence[str] = (),
) -> pa.Table | None:
    """All cells in columns named by their positions; None if a row has another number of cells, or a cell is not of its type.

    Args:
        many_lines: values hold line breaks.
        types: of the columns; None: all cells are bytes.
        null: with ``types``, the spellings of a missing value.
    """
    names = [str(position) for position in range(layout.width)]
    wanted = [str(position) for position in layout.positions]
    syntax = layout.syntax
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in wanted})
    if data.startswith(_BOM):
        data = _BOM + data  # Arrow drops one at the start of its input; here it belongs to a value
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
            parse_options=arrow_csv.ParseOptions(
                delimiter=syntax.delimiter,
                quote_char='"' if syntax.quoted else False,
                double_quote=syntax.quoted,
                newlines_in_values=many_lines and syntax.quoted,
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=wanted,
                column_types=types or dict.fromkeys(wanted, pa.binary()),
                null_values=null,
                strings_can_be_null=types is not None,
                check_utf8=types is not None,
            ),
        )
    except pa.ArrowInvalid:
        return None


def one_cell_array(column: pa.ChunkedArray) -> pa.Array:
    """A column of cells as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pc.cast(pa.concat_arrays(column.chunks), column.type)
