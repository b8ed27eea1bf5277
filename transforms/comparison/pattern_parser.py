"""The parser of patterns. It evaluates nothing.

    term      _ | name | column("name") | moment("2026-03-01") | literal | @digits | artifact digits | call
    call      (operator | _) [@version] ( [part, …] )
    part      term | ... | parameter = value | function v-digits
    value     _ | literal | (value, …) | (value, … n in all)

The syntax includes all output of ``expression_text``. Python's own parser is not used: ``and``, ``or`` and ``not`` are
keywords there, and it normalises names to NFKC, whereas two spellings of a name are two columns.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from transforms.comparison.pattern_terms import (
    Anything,
    ArtifactDigest,
    Call,
    ColumnTerm,
    Constant,
    Fingerprint,
    Moment,
    Several,
    Term,
    Value,
)
from transforms.errors import InputError, nearest
from transforms.graphs.programs import OWN_KEYWORDS, PROGRAMS
from transforms.operators import REGISTRY
from transforms.operators.declaration import Param
from transforms.time_range import microseconds

NESTING_MAX = 100
LENGTH_MAX = 20_000
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<program>(?:<\w+>|[^\W\d]\w*)\ v-[0-9a-f]{8}\b)
      | (?P<artifact>artifact\s+[0-9a-fA-F]+\b)
      | (?P<at>@\w+)
      | (?P<number>[-+]?(?:(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf\b|nan\b)(?!\w))
      | (?P<name>[^\W\d]\w*)
      | (?P<further>\.\.\.)
      | (?P<cut>…)
      | (?P<sign>[()\[\],=])""",
    re.VERBOSE,
)
_HEX = re.compile(r"[0-9a-f]{4,64}")
_SHORTENED = re.compile(r"…\s*(\d+)\s+in\s+all")
_WORDS: dict[str, Value] = {"_": Anything(), "True": Constant(True), "False": Constant(False), "None": Constant(None)}
_ONE_WORD = 'a column whose name is not one word is written column("its name")'
_CLOSING = {"(": ")", "[": "]"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def parse_term(text: str) -> Term:
    """The term of ``text``. Raises :class:`InputError` with the character and the text near it."""
    parser = _Parser(text)
    term = parser.term(0)
    parser.end()
    return term


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > LENGTH_MAX:
            raise InputError("a pattern must be shorter", value=len(text), allowed=f"up to {LENGTH_MAX} characters")
        self._tokens = self._scanned()
        self._next = 0

    def _scanned(self) -> list[_Token]:
        tokens, start = [], 0
        while start < len(self._text):
            found = _TOKEN.match(self._text, start)
            if found is None:
                raise self._refusal("a pattern must hold only characters of its syntax", start, value=self._text[start],
                                    next_step="write operators as calls, such as intersect(unigrams(query), _)")  # fmt: skip
            if found.lastgroup != "space":
                tokens.append(_Token(str(found.lastgroup), found[0], start))
            start = found.end()
        return [*tokens, _Token("end", "", len(self._text))]

    def end(self) -> None:
        """Raise unless the whole text is read."""
        token = self._peek()
        if token.kind != "end":
            hint = _ONE_WORD if token.kind == "name" else "a pattern must be one expression"
            raise self._unexpected(token, "the end of the pattern", hint)

    def term(self, depth: int) -> Term:
        """A pattern for one node."""
        token = self._take()
        self._check_depth(token, depth)
        match token.kind:
            case "string" | "number":
                return self._constant(token)
            case "at":
                return Fingerprint(self._digits(token, token.text[1:]))
            case "artifact":
                return ArtifactDigest(self._digits(token, token.text.split()[1]))
            case "name":
                return self._named(token, depth)
            case _:
                raise self._unexpected(token, "an operator, a column, a literal, _ or @fingerprint")

    def _named(self, token: _Token, depth: int) -> Term:
        following = self._peek()
        versioned = following.kind == "at" and following.start == token.start + len(token.text)
        if versioned or following.text == "(":
            return self._written(token.text) if token.text in ("column", "moment") else self._call(token, depth)
        if token.text in ("True", "False"):
            return Constant(token.text == "True")
        return Anything() if token.text == "_" else ColumnTerm(token.text)

    def _written(self, what: str) -> ColumnTerm | Moment:
        """A column or a moment by its text in quotes; a moment outside the years 1 to 9999 by its number."""
        self._expect("(")
        token = self._take()
        is_number = what == "moment" and token.kind == "number" and re.fullmatch(r"-?[0-9]{1,19}", token.text)
        if token.kind != "string" and not is_number:
            raise self._unexpected(token, "a column's name in quotes" if what == "column" else "a time in quotes")
        self._expect(")")
        if is_number:
            return Moment(int(token.text))
        text = self._string(token)
        return ColumnTerm(text) if what == "column" else Moment(self._microseconds(token, text))

    def _microseconds(self, token: _Token, text: str) -> int:
        try:
            return microseconds(text)
        except InputError as error:
            raise self._refusal(error.what, token.start, value=text, allowed=error.allowed) from None

    def _call(self, token: _Token, depth: int) -> Call:
        operator = None if token.text == "_" else token.text
        if operator is not None and operator not in REGISTRY:
            raise self._refusal("unknown operator", token.start, value=operator,
                                allowed=nearest(operator, (each.name for each in REGISTRY)))  # fmt: skip
        parts = _Parts()
        if self._peek().kind == "at":
            version = self._take()
            parts.version = self._version(version, version.text[1:])
        self._expect("(")
        for _ in self._separated(")"):
            self._part(parts, operator, depth)
        self._check_arity(token, operator, parts)
        params = tuple(sorted(parts.params.items()))
        return Call(operator, parts.version, tuple(parts.args), params, parts.further, parts.program)

    def _part(self, parts: _Parts, operator: str | None, depth: int) -> None:
        token = self._peek()
        if token.kind == "name" and self._peek(1).text == "=":
            self._parameter(parts, operator, depth)
        elif token.kind == "further":
            self._take()
            parts.further = True
        elif token.kind == "program" and operator in PROGRAMS and not parts.program:
            parts.program = self._take().text
        elif parts.further:
            raise self._unexpected(token, "a parameter, or the end: ... comes after the arguments")
        else:
            parts.args.append(self.term(depth + 1))

    def _parameter(self, parts: _Parts, operator: str | None, depth: int) -> None:
        token = self._take()
        self._expect("=")
        at, name = self._peek(), token.text
        value = self.value(depth + 1)
        is_version = name == "version" and operator not in OWN_KEYWORDS  # a function may have a parameter of this name
        if name in parts.params or (is_version and parts.version is not None):
            raise self._refusal("a parameter must be named only once", token.start, value=name)
        if is_version:
            parts.version = self._version(at, at.text)
            return
        if operator not in OWN_KEYWORDS:
            self._check_parameter(token, at, operator, value)
        parts.params[name] = value

    def _check_parameter(self, token: _Token, at: _Token, operator: str | None, value: Value) -> None:
        """Raise for an unknown parameter, and for a value that no parameter of the name can have."""
        operators = list(REGISTRY) if operator is None else [REGISTRY[operator]]
        declared = [param for each in operators for param in each.params if param.name == token.text]
        if not declared:
            known = {param.name for each in operators for param in each.params}
            what = f"{operator} has no such parameter" if operator else "no operator has such a parameter"
            raise self._refusal(what, token.start, value=token.text, allowed=nearest(token.text, known))
        if not any(_may_be(param, value) for param in declared):
            kinds = sorted({param.kind_name for param in declared})
            raise self._refusal("a parameter must have a value of its type", at.start, value=f"{token.text}={at.text}",
                                allowed=" or ".join(kinds))  # fmt: skip

    def _check_arity(self, token: _Token, operator: str | None, parts: _Parts) -> None:
        """Raise for a number of arguments that this version of the operator does not take."""
        if operator is None or parts.version not in (None, REGISTRY[operator].version):
            return
        args, given = REGISTRY[operator].args, len(parts.args)
        variadic = bool(args) and args[-1].variadic
        if (given > len(args) and not variadic) or (given < len(args) and not parts.further):
            raise self._refusal(f"the arguments of {operator} must be as many as it takes", token.start, value=given,
                                allowed=", ".join(arg.name for arg in args) + (", and more" if variadic else ""),
                                next_step=f"{operator}(...) stands for any arguments")  # fmt: skip

    def value(self, depth: int) -> Value:
        """A parameter's value."""
        token = self._take()
        self._check_depth(token, depth)
        if token.kind in ("string", "number"):
            return self._constant(token)
        if token.text in _WORDS:
            return _WORDS[token.text]
        if token.text not in _CLOSING:
            raise self._unexpected(token, "a literal, _ or a tuple of these")
        items: list[Value] = []
        count = None
        for _ in self._separated(_CLOSING[token.text]):
            if count is not None:
                raise self._unexpected(self._peek(), "the end of the tuple")
            if self._peek().kind == "cut" and len(items) == 1:
                count = self._count()
            else:
                items.append(self.value(depth + 1))
        return Several(tuple(items), count)

    def _count(self) -> int:
        """The number of items of a shortened tuple, after ``…``."""
        cut = self._peek()
        found = _SHORTENED.match(self._text, cut.start)
        if found is None or len(found[1]) > 18:
            raise self._unexpected(cut, "a value")
        while self._peek().start < found.end():
            self._take()
        return int(found[1])

    def _separated(self, closing: str) -> Iterator[None]:
        """Yield before each part, up to and past ``closing``; a comma may follow the last part."""
        while self._peek().text != closing:
            yield
            if self._peek().text not in (closing, ","):
                hint = _ONE_WORD if self._peek().kind == "name" else ""
                raise self._unexpected(self._take(), f", or {closing}", hint)
            if self._peek().text == ",":
                self._take()
        self._take()

    def _constant(self, token: _Token) -> Constant:
        if token.kind == "string":
            return Constant(self._string(token))
        sign, digits = (-1, token.text[1:]) if token.text[0] == "-" else (1, token.text.removeprefix("+"))
        try:
            if digits == "nan":
                return Constant(math.nan)
            return Constant(sign * (int(digits) if re.fullmatch(r"[\d_]+", digits) else float(digits)))
        except ValueError:
            raise self._unexpected(token, "a number") from None

    def _string(self, token: _Token) -> str:
        try:
            return str(ast.literal_eval(token.text))
        except (SyntaxError, ValueError):
            raise self._unexpected(token, "a text in quotes, escaped as in Python") from None

    def _digits(self, token: _Token, digits: str) -> str:
        if not _HEX.fullmatch(digits.lower()):
            raise self._unexpected(token, "4 to 64 hexadecimal digits, as headrace graphs ls prints them")
        return digits.lower()

    def _version(self, token: _Token, digits: str) -> int:
        if not re.fullmatch(r"[1-9][0-9]{0,8}", digits):
            raise self._unexpected(token, "a version: a whole number from 1 on")
        return int(digits)

    def _check_depth(self, token: _Token, depth: int) -> None:
        if depth > NESTING_MAX:
            raise self._refusal(
                "a pattern must be nested less deeply", token.start, allowed=f"up to {NESTING_MAX} levels"
            )

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, sign: str) -> None:
        token = self._take()
        if token.text != sign:
            raise self._unexpected(token, sign)

    def _unexpected(self, token: _Token, allowed: str, next_step: str = "") -> InputError:
        if token.kind == "cut":
            return self._refusal("a pattern must not be a shortened expression", token.start, value="…", allowed=allowed,
                                 next_step="name the component by its fingerprint, as in @7d1f0c")  # fmt: skip
        what = "unexpected end of the pattern" if token.kind == "end" else "unexpected text in the pattern"
        return self._refusal(what, token.start, value=token.text or None, allowed=allowed, next_step=next_step)

    def _refusal(
        self, what: str, start: int, *, value: object = None, allowed: str = "", next_step: str = ""
    ) -> InputError:
        near = self._text[max(0, start - 20) : start + 20]
        return InputError(what, where=f"pattern, character {start + 1}, near {near!r}", value=value, allowed=allowed,
                          next_step=next_step)  # fmt: skip


@dataclass(slots=True)
class _Parts:
    """The parts of a call that are read so far."""

    version: int | None = None
    args: list[Term] = field(default_factory=list)
    params: dict[str, Value] = field(default_factory=dict)
    further: bool = False
    program: str = ""


def _may_be(param: Param, value: Value) -> bool:
    """Whether a parameter of this declaration can be ``value``; an integer may be a float too."""
    kinds = param.kind if isinstance(param.kind, tuple) else (param.kind,)
    match value:
        case Anything():
            return True
        case Several():
            return tuple in kinds
        case Constant(value=constant):
            return type(constant) in kinds or (type(constant) in (int, float) and bool({int, float} & set(kinds)))
