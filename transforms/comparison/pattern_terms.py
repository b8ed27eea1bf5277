"""The terms of patterns and their text; :mod:`transforms.comparison.pattern` matches them."""

from __future__ import annotations

from dataclasses import dataclass

from transforms.render.text import column_text
from transforms.time_range import timestamp_text


@dataclass(frozen=True, slots=True)
class Anything:
    """``_``: any node, or any value of a parameter."""


@dataclass(frozen=True, slots=True)
class ColumnTerm:
    """``query`` or ``column("weird name")``: the raw column of this name, of any type."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """``3``, ``'Red'``, ``True``: a literal of this value. Numbers are compared by value: 3 is 3.0.

    ``None`` is a value of parameters only.
    """

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Moment:
    """``moment("2026-03-01")``: a constant timestamp, in microseconds since 1970-01-01 in UTC."""

    microseconds: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """``@7d1f0c``: the node whose identity has this prefix."""

    prefix: str


@dataclass(frozen=True, slots=True)
class ArtifactDigest:
    """``artifact 7d1f0c``: the artifact whose digest has this prefix."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple of values. ``count`` is set if only the first is written: ``(0.5, … 12 in all)``."""

    items: tuple[Value, ...]
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """``unigrams@1(lower(query), ..., n=2)``: an operation.

    Attributes:
        operator: the name; None, written ``_``, is any operator.
        version: the version; None is any.
        further: ``...``: any further arguments.
        params: the stated parameters; a program has its own. Others may have any value.
        program: the printed name of a function or graph, such as ``reversed_text v-c2e133a0``.
    """

    operator: str | None
    version: int | None = None
    args: tuple[Term, ...] = ()
    params: tuple[tuple[str, Value], ...] = ()
    further: bool = False
    program: str = ""


Value = Anything | Constant | Several
Term = Anything | ColumnTerm | Constant | Moment | Fingerprint | ArtifactDigest | Call


def term_text(term: Term) -> str:
    """The text of a term; parsing it gives an equal term."""
    match term:
        case Anything():
            return "_"
        case ColumnTerm(name=name):
            return column_text(name)
        case Constant(value=value):
            return repr(value)
        case Moment(microseconds=microseconds):
            return f"moment({timestamp_text(microseconds)})"
        case Fingerprint(prefix=prefix):
            return f"@{prefix}"
        case ArtifactDigest(prefix=prefix):
            return f"artifact {prefix}"
        case Call():
            version = "" if term.version is None else f"@{term.version}"
            parts = [term_text(arg) for arg in term.args]
            parts += ["..."] if term.further else []
            parts += [term.program] if term.program else []
            parts += [f"{name}={value_text(value)}" for name, value in term.params]
            return f"{term.operator or '_'}{version}({', '.join(parts)})"


def value_text(value: Value) -> str:
    """The text of a parameter's value."""
    match value:
        case Anything():
            return "_"
        case Constant(value=constant):
            return repr(constant)
        case Several(items=items, count=None):
            return f"({', '.join(map(value_text, items))}{',' if len(items) == 1 else ''})"
        case Several(items=items, count=count):
            return f"({value_text(items[0])}, … {count} in all)"
