"""Detect the text encoding of a sample.

A byte order mark decides. Without one, zero bytes at every second place mean UTF-16, and valid UTF-8 is UTF-8. Then bytes
of which GB18030 decodes at least 90% of the non-ASCII characters into GB 2312 are GB18030. All other bytes are CP1252, or
Latin-1 if a byte is undefined in CP1252.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence

from pipelines.parsing.text import utf8_pieces

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
          (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_NOT_IN_CP1252 = frozenset(b"\x81\x8d\x8f\x90\x9d")
_CHINESE_SHARE = 0.9
_ZEROS_SHARE = 0.3


def detect_encoding(parts: Sequence[bytes]) -> tuple[str, bool]:
    """The encoding of ``parts``, the first of which begins a file, and whether it is a guess."""
    head = parts[0] if parts else b""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, False
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) > _ZEROS_SHARE * max(len(head) // 2, 1) and min(even, odd) * 4 < max(even, odd):
        return ("utf-16-be" if even > odd else "utf-16-le"), True
    lines = [_whole_lines(part, first=not at) for at, part in enumerate(parts)]
    if all(_decodes(part, "utf-8") for part in lines):
        return "utf-8", False
    text = "".join(part.decode("gb18030", "replace") for part in lines)
    beyond = [letter for letter in text if letter > "\x7f"]
    if beyond and sum(_decodes_as_gb2312(letter) for letter in beyond) >= _CHINESE_SHARE * len(beyond):
        return "gb18030", True
    undefined = _NOT_IN_CP1252.intersection(b"".join(lines))
    return ("iso8859-1" if undefined else "cp1252"), True


def decoded_lines(part: bytes, encoding: str, *, first: bool) -> str:
    """The text of the whole lines of a part; undecodable bytes become U+FFFD."""
    text = b"".join(utf8_lines(part, encoding, first=first)).decode("utf-8", "replace")
    return text.removeprefix("\ufeff") if first else text


def utf8_lines(part: bytes, encoding: str, *, first: bool, last: bool = False) -> Iterator[bytes]:
    """The whole lines of a part in UTF-8, decoded as an import does.

    ``first``: whether the part begins a file; ``last``: whether it ends one, so that its last line is whole.
    """
    if not encoding.startswith(("utf-16", "utf-32")):
        yield from utf8_pieces(iter([_whole_lines(part, first=first, last=last)]), encoding)
        return
    if not first and encoding in ("utf-16", "utf-32"):
        little = part[1::2].count(0) >= part[0::2].count(0)
        encoding = f"{encoding}-{'le' if little else 'be'}"
    yield _whole_lines(b"".join(utf8_pieces(iter([part]), encoding)), first=first, last=last)


def _whole_lines(part: bytes, *, first: bool, last: bool = False) -> bytes:
    """The bytes of the whole lines of a part; all bytes if there is no line end."""
    start = 0 if first else part.find(b"\n") + 1
    if last:
        return part[start:]
    end = part.rfind(b"\n") + 1
    if end <= start:
        end = part.rfind(b"\r") + 1
    return part[start:end] if end > start else part[start:]


def _decodes(part: bytes, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        decoder.decode(part)  # an incomplete character at the end is no error
    except UnicodeDecodeError:
        return False
    return True


def _decodes_as_gb2312(letter: str) -> bool:
    try:
        letter.encode("gb2312")
    except UnicodeEncodeError:
        return False
    return True
