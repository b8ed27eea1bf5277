"""The entries of a schema file about the syntax of its files: encoding, delimiter, quotes, escapes, preambles."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping

from pipelines.errors import LogSchemaError
from pipelines.log_schemas.columns import LogFormat
from pipelines.log_schemas.entries import character_entry, flag_entry, text_entry

_LONGEST_PREAMBLE = 20
#: Codecs that decode text without escape states, as Python names them.
ENCODINGS = frozenset(
    {"utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "gb2312", "gbk", "gb18030",
     "big5", "big5hkscs", "shift_jis", "shift_jisx0213", "shift_jis_2004", "euc_jp", "euc_jisx0213", "euc_jis_2004",
     "euc_kr", "johab", "koi8-r", "koi8-u", "koi8-t", "kz1048", "ptcp154", "mac-roman", "mac-cyrillic", "mac-greek",
     "mac-latin2", "mac-turkish", "mac-iceland", "tis-620", "hp-roman8", "cp932", "cp949", "cp950"}
    | {f"iso8859-{part}" for part in range(1, 17) if part != 12} | {f"cp{page}" for page in range(1250, 1259)}
    | {f"cp{page}" for page in (437, 720, 737, 775, 850, 852, 855, 857, 858, 860, 861, 862, 863, 864, 865, 866, 869, 874, 1125)}
)  # fmt: skip


def encoding_entry(value: object, where: str) -> str:
    """The text encoding, by the name that Python's codec has."""
    name = text_entry(value, where)
    try:
        found = codecs.lookup(name).name if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", name) else ""
    except LookupError:
        found = ""
    found = "utf-8" if found == "utf-8-sig" else found
    if found not in ENCODINGS:
        raise LogSchemaError("encoding must be a known text encoding", where=where, value=name,
                             allowed="utf-8, latin-1, cp1252, utf-16, gb18030, big5, shift_jis, euc-jp, euc-kr, "
                             "and other text encodings by their Python names")  # fmt: skip
    return found


def delimiter_entry(top: Mapping[str, object], where: str, log_format: LogFormat) -> str:
    """The character between cells; empty for the format's own."""
    if "delimiter" not in top:
        return ""
    if log_format != "csv":
        raise LogSchemaError(
            "a delimiter must be given for CSV only", where=f"{where}, delimiter", value=top["delimiter"], allowed="csv"
        )
    delimiter = character_entry(top["delimiter"], f"{where}, delimiter", '"\r\n')
    if not delimiter.isascii():
        raise LogSchemaError("a delimiter must be an ASCII character", where=f"{where}, delimiter", value=delimiter)
    return "" if delimiter == "," else delimiter


def refuse_in_json(top: Mapping[str, object], where: str, log_format: LogFormat) -> None:
    """Raise :class:`LogSchemaError` for an entry that JSON lines do not take."""
    for key in ("quote", "escape", "preamble", "trailing_delimiter"):
        if key in top and log_format == "jsonl":
            raise LogSchemaError(
                f"{key} must be given for TSV and CSV only", where=f"{where}, {key}", value=top[key], allowed="tsv, csv"
            )


def quote_entry(top: Mapping[str, object], where: str, log_format: LogFormat) -> bool | None:
    """Whether cells may be quoted; None for the format's default."""
    if "quote" not in top:
        return None
    quote = flag_entry(top["quote"], f"{where}, quote")
    return None if quote == (log_format == "csv") else quote


def escape_entry(top: Mapping[str, object], where: str) -> str:
    """The escape character; empty for none."""
    if "escape" not in top:
        return ""
    escape = character_entry(top["escape"], f"{where}, escape", '"\r\n')
    if not escape.isascii() or escape.isalnum() or escape.isspace() or escape == top.get("delimiter", ","):
        raise LogSchemaError("an escape must be an ASCII character that is no letter, digit, space or delimiter",
                             where=f"{where}, escape", value=escape, allowed='such as "\\\\"')  # fmt: skip
    return escape


def preamble_entry(top: Mapping[str, object], where: str) -> str:
    """The beginning of the lines before the header; empty for none."""
    if "preamble" not in top:
        return ""
    start = text_entry(top["preamble"], f"{where}, preamble")
    if not 1 <= len(start) <= _LONGEST_PREAMBLE or not start.strip() or {"\r", "\n", "\0"}.intersection(start):
        raise LogSchemaError(f"a preamble must be the beginning of a line, of 1 to {_LONGEST_PREAMBLE} characters",
                             where=f"{where}, preamble", value=start, allowed='such as "#"')  # fmt: skip
    return start
