"""The text of a log file as UTF-8 with line feeds, piece by piece, whatever encoding and line ends it has.

A byte that the encoding cannot decode travels on as what is no UTF-8 either (a lone surrogate), so that its cell is
refused further down like any other that is no text; :func:`original_bytes` shows the byte again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_MARKED = "headrace.marked"
_FIRST_MARK = 0xDC00
#: How the lone surrogates U+DC00 to U+DCFF stand in bytes.
_MARK_BYTES = re.compile(rb"\xed[\xb0-\xb3][\x80-\xbf]")


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    # Codecs of more than one byte may blame a pair whose second byte is a line end; only those of fixed width go on whole.
    wide = error.encoding.startswith(("utf-16", "utf16", "utf-32", "utf32"))
    end = error.end if wide else error.start + 1
    return "".join(chr(_FIRST_MARK + byte) for byte in error.object[error.start : end]), end


codecs.register_error(_MARKED, _mark)


def original_bytes(text: bytes) -> bytes:
    """``text`` with the bytes that no encoding could decode, as they stood in the file."""
    if b"\xed" not in text:
        return text
    return _MARK_BYTES.sub(lambda found: bytes([ord(found[0].decode("utf-8", "surrogatepass")) - _FIRST_MARK]), text)


def utf8_pieces(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Pieces of a file in ``encoding`` as UTF-8; characters may be cut anywhere between pieces."""
    if encoding == "utf-8":
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)(_MARKED)
    for piece in pieces:
        text = decoder.decode(piece)
        if text:
            yield text.encode("utf-8", "surrogatepass")
    if rest := decoder.decode(b"", final=True):
        yield rest.encode("utf-8", "surrogatepass")


def line_feed_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces with a line feed at each line end, where the first line of the file ends with a carriage return alone.

    Every other file passes as it is.
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
