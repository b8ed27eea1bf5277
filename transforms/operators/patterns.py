r"""Operators over regular expressions, as RE2 defines them: linear time, leftmost match, first alternative.

``\d``, ``\w``, ``\s`` and ``\b`` know ASCII only, ``$`` is the end of the text. Back references and look-around do not
exist in RE2. ``\C`` and ``\B`` are also refused, since they match inside a character. An
unsupported pattern is refused when the expression is built.

RE2's Unicode tables depend on its release, which differs between Arrow and TensorFlow. So general categories such as
``\pL`` are written out as ranges of Unicode 14.0, and scripts are refused.

The reference is Python's ``re`` for the patterns that mean the same in both, else RE2 itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache

from transforms.errors import InputError
from transforms.operators import unicode14
from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import TEXT, at_least, unicode_text
from transforms.types import ColumnType, Dense, DType

_KERNELS, _TWINS = "transforms.kernels.text_patterns", "transforms.twins.patterns"
_TEXT = Arg("text", dense=TEXT)

#: The name under which a pattern's one group is asked for.
GROUP = "it"

_PROPERTY = r"(?P<property>\\[pP](?:\{[^}]*\}|.))"
#: A pattern's parts: quotation, property, escape, class, and the ways to open a group.
_PART = re.compile(
    rf"\\Q(?P<quoted>.*?)(?:\\E|\Z)|{_PROPERTY}"
    r"|(?P<escape>\\.)|(?P<cls>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<named>\(\?P?<[^>]+>)|(?P<other>\(\?)|(?P<group>\()|(?P<plain>.)",
    re.DOTALL,
)

_PROPERTY_OR_ESCAPE = re.compile(rf"{_PROPERTY}|\\.", re.DOTALL)

_ATOM = r"(?:[^\\\[\](){}?*+|^$.]|\.|\\[dDwW]|\\[^\w\s]|\[\^?(?:[^\\\[\]^-]|\\[dw]|\\[^\w\s]|\w-\w)+\])"
_TIMES = r"(?:(?:[*+?]|\{\d+(?:,\d*)?\})\??)?"
_PLAIN_GROUP = rf"\((?:\?:)?{_ATOM}+(?:\|{_ATOM}+)*\){_TIMES}"
_ALIKE = re.compile(rf"(?:{_PLAIN_GROUP}|{_ATOM}{_TIMES}|\\b|\^|\||\((?:\?:)?|\)(?![*+?{{]))*", re.ASCII)


def escaped(text: str) -> str:
    """A pattern of ``text`` itself, and nothing else, in RE2's syntax."""
    return "".join(c if c.isalnum() or not c.isascii() else f"\\x{{{ord(c):x}}}" for c in text)


def only_group(pattern: str, group: int, opening: str) -> str:
    """``pattern`` as every RE2 reads it, in which the given group opens as ``opening`` says and no other is kept.

    Group 0 is the whole pattern.
    """
    parts, seen = [], 0
    for kind, text in _parts(pattern):
        if kind in ("named", "group"):
            seen += 1
            text = opening if seen == group else "(?:"
        parts.append(text)
    return f"{opening if group == 0 else '(?:'}{''.join(parts)})"


def unnamed(pattern: str) -> str:
    """``pattern`` as every RE2 reads it, its groups' names left out."""
    return "".join("(" if kind == "named" else text for kind, text in _parts(pattern))


@cache
def groups_of(pattern: str) -> int:
    """The number of groups of a valid pattern."""
    return sum(kind in ("named", "group") for kind, _ in _parts(pattern))


def parts_of_replacement(replacement: str) -> tuple[int, int]:
    """(the number of groups that a replacement copies, its other bytes)."""
    escapes = re.findall(r"\\(.)", replacement, re.DOTALL)
    copies = sum(escape != "\\" for escape in escapes)
    return copies, len(replacement.encode()) - copies - len(escapes)


@cache
def refusal(pattern: str) -> str:
    """Why ``pattern`` cannot be used, or ''."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:  # as it is, so that nothing unbalanced passes, and as it is used
        pc.match_substring_regex(pa.array([""]), pattern)
        properties, escapes = _properties_and_escapes(pattern)
        if not unicode14.CATEGORIES.issuperset(map(_category, properties)):
            return (
                r"of Unicode classes, general categories such as \p{Lu}; a script as ranges, such as [\x{370}-\x{3ff}]"
            )
        if not escapes.isdisjoint((r"\B", r"\C")):
            return r"RE2 syntax without \B and \C, which match inside a character"
        pc.extract_regex(pa.array([""]), rf"\A(?s:.*?){only_group(pattern, 0, f'(?P<{GROUP}>')}(?s:.*)\z")
    except pa.ArrowInvalid as error:
        return f"RE2 syntax, of which this is not: {error}"
    return ""


def _parts(pattern: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each part; quotations and properties are written out."""
    for part in _PART.finditer(pattern):
        kind, text = str(part.lastgroup), part.group()
        match kind:
            case "quoted":
                text = escaped(part["quoted"])
            case "property":
                text = f"[{_ranges(text)}]"
            case "cls":
                text = _PROPERTY_OR_ESCAPE.sub(lambda it: _ranges(it.group()) if it["property"] else it.group(), text)
        yield kind, text


def _properties_and_escapes(pattern: str) -> tuple[set[str], set[str]]:
    properties, escapes = set(), set()
    for part in _PART.finditer(pattern):
        if part.lastgroup == "escape":
            escapes.add(part.group())
        elif part.lastgroup in ("property", "cls"):
            properties |= {it.group() for it in _PROPERTY_OR_ESCAPE.finditer(part.group()) if it["property"]}
    return properties, escapes


def _category(named: str) -> str:
    return named[2:].strip("{^}")


def _ranges(named: str) -> str:
    """The members of a property, or of all but it, as a class has them."""
    ranges = unicode14.category_ranges(_category(named))
    if (named[1] == "P") != ("^" in named):
        edges = [-1, *(edge for pair in ranges for edge in pair), sys.maxunicode + 1]
        gaps = ((last + 1, first - 1) for last, first in zip(edges[::2], edges[1::2], strict=True))
        ranges = tuple((first, last) for first, last in gaps if first <= last)
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ranges)


def _pattern(value: Scalar) -> str:
    return unicode_text(value) or refusal(str(value))


def _extract_type(types: Types, params: Params) -> ColumnType:
    groups = groups_of(str(params["pattern"]))
    if int(params["group"]) > groups:  # type: ignore[arg-type]
        raise InputError("the group must be one of the pattern", where="operator regex_extract, parameter group",
                         value=params["group"], allowed=f"0 .. {groups}")  # fmt: skip
    return Dense(DType.STRING)


def _replace_type(types: Types, params: Params) -> ColumnType:
    groups = groups_of(str(params["pattern"]))
    for escape in re.findall(r"\\(.?)", str(params["replacement"]), re.DOTALL):
        if escape != "\\" and not (escape in "0123456789" and escape and int(escape) <= groups):
            raise InputError("the replacement must refer to groups of the pattern", where="operator regex_replace, parameter replacement",
                             value=params["replacement"], allowed=rf"\0 .. \{min(groups, 9)}, and \\ for a backslash")  # fmt: skip
    return Dense(DType.STRING)


def means_the_same_in_python(pattern: str) -> bool:
    """Whether Python's ``re`` with ``re.ASCII`` surely finds what RE2 finds; False says nothing."""
    return _ALIKE.fullmatch(pattern) is not None


def _regex_extract(text: str, *, pattern: str, group: int) -> str | None:
    if not means_the_same_in_python(pattern):
        return _by_re2("regex_extract", text, pattern=pattern, group=group)
    match = re.search(pattern, text, re.ASCII)
    return None if match is None else match[group] or ""


def _regex_replace(text: str, *, pattern: str, replacement: str) -> str | None:
    if not means_the_same_in_python(pattern):
        return _by_re2("regex_replace", text, pattern=pattern, replacement=replacement)
    compiled, pieces, at, behind = re.compile(pattern, re.ASCII), [], 0, -1
    while match := compiled.search(text, at):
        pieces.append(text[at : match.start()])
        if match.end() == behind:  # an empty match right after the last one does not count
            if at == len(text):
                return "".join(pieces)
            pieces.append(text[at])
            at += 1
            continue
        pieces.append(_filled(replacement, match))
        at = behind = match.end()
    return "".join([*pieces, text[at:]])


def _filled(replacement: str, match: re.Match[str]) -> str:
    return re.sub(r"\\(.)", lambda escape: escape[1] if escape[1] == "\\" else match[int(escape[1])] or "", replacement)


_one_text = Imported(_KERNELS, "one_text")


def _by_re2(operator: str, text: str, **params: Scalar) -> str | None:
    found: str | None = _one_text(operator, text, **params)
    return found


_PATTERN = Param("pattern", str, check=_pattern, doc="a regular expression in RE2's syntax")

REGEX_EXTRACT = Operator(
    name="regex_extract",
    version=1,
    family="text",
    summary="The first match of an RE2 pattern, or one group of it; null without a match, empty for a group that took no part.",
    args=(_TEXT,),
    result=_extract_type,
    reference=_regex_extract,
    kernel=Imported(_KERNELS, "regex_extract"),
    params=(_PATTERN, Param("group", int, 0, check=at_least(0), doc="which group; 0 is the whole match")),
    cost_ns=150,
    lifts=True,
    twin=Imported(_TWINS, "regex_extract"),
    example=Example(
        r"""hr.text("size").regex_extract(r"(\d+) ?ml", group=1)""",
        {"size": ["Shampoo 250 ml", "3 x 50ml", "one litre"]},
        ["250", "50", None],
    ),
)

REGEX_REPLACE = Operator(
    name="regex_replace",
    version=1,
    family="text",
    summary="Every match of an RE2 pattern replaced, from the left; an empty match right after another one does not count.",
    args=(_TEXT,),
    result=_replace_type,
    reference=_regex_replace,
    kernel=Imported(_KERNELS, "regex_replace"),
    params=(
        _PATTERN,
        Param(
            "replacement", str, check=unicode_text, doc=r"the replacement: \1 is group 1, \0 the match, \\ a backslash"
        ),
    ),
    cost_ns=300,
    lifts=True,
    twin=Imported(_TWINS, "regex_replace"),
    example=Example(
        r"""hr.text("query").regex_replace(r"(\d+)\s*(gb|tb)", r"\1\2")""",
        {"query": ["ssd 512 gb or 2  tb", "keyboard"]},
        ["ssd 512gb or 2tb", "keyboard"],
    ),
)

OPERATORS = (REGEX_EXTRACT, REGEX_REPLACE)
