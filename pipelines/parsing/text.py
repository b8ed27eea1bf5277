"""Convert a log file of any encoding and line ends to UTF-8 with line feeds, piece by piece.

A byte that cannot be decoded becomes a lone surrogate, which is invalid UTF-8, so that its cell is rejected like any
other invalid text; :func:`escape_bytes` shows the original byte.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator

_MARKED = "headrace.marked"
_FIRST_MARK = 0xDC00
#: The byte order marks of big-endian files.
_ORDER_MARKS = {"utf-16": codecs.BOM_UTF16_BE, "utf-32": codecs.BOM_UTF32_BE}
#: The bytes of the lone surrogates U+DC00 to U+DCFF.
_MARK_BYTES = re.compile(rb"\xed[\xb0-\xb3][\x80-\xbf]")


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    # A multi-byte codec may report a pair whose second byte is a line end; only codecs of fixed width skip the whole pair.
    wide = error.encoding.startswith(("utf-16", "utf16", "utf-32", "utf32"))
    end = error.end if wide else error.start + 1
    return "".join(chr(_FIRST_MARK + byte) for byte in error.object[error.start : end]), end


codecs.register_error(_MARKED, _mark)


def escape_bytes(text: bytes) -> bytes:
    """``text`` with ``\\xNN`` for every byte that could not be decoded."""
    if b"\xed" not in text:
        return text
    return _MARK_BYTES.sub(
        lambda found: b"\\x%02x" % (ord(found[0].decode("utf-8", "surrogatepass")) - _FIRST_MARK), text
    )


def utf8_pieces(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Pieces of a file in ``encoding`` as UTF-8; characters may span pieces."""
    if encoding == "utf-8":
        yield from pieces
        return
    if encoding in _ORDER_MARKS:
        encoding, pieces = _byte_order(pieces, encoding)
    decoder = codecs.getincrementaldecoder(encoding)(_MARKED)
    for piece in pieces:
        text = decoder.decode(piece)
        if text:
            yield text.encode("utf-8", "surrogatepass")
    if rest := decoder.decode(b"", final=True):
        yield rest.encode("utf-8", "surrogatepass")


def _byte_order(pieces: Iterator[bytes], encoding: str) -> tuple[str, Iterator[bytes]]:
    """The encoding with its byte order by the byte order mark; little-endian without one."""
    mark, start = _ORDER_MARKS[encoding], b""
    for piece in pieces:
        start += piece
        if len(start) >= len(mark):
            break
    return f"{encoding}-{'be' if start.startswith(mark) else 'le'}", itertools.chain([start], pieces)


def line_feed_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces with line feeds in place of carriage returns, if the first line of the file ends with one alone.

    Other files are unchanged.
    """
    held, undecided, alone = b"", True, False
    for piece in pieces:
        piece, held = held + piece, b""
        if (undecided or alone) and piece.endswith(b"\r"):
            piece, held = piece[:-1], b"\r"
        if undecided:
            first = min((at for at in (piece.find(b"\r"), piece.find(b"\n")) if at >= 0), default=-1)
            if first >= 0:
                undecided = False
                alone = piece[first : first + 1] == b"\r" and piece[first + 1 : first + 2] != b"\n"
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if alone else piece
        if piece:
            yield piece
    if held:
        yield b"\n" if alone else held
