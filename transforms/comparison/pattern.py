"""Patterns over component graphs, which find subgraphs of a given form.

    unigrams(lower(query))          hash_buckets(_, buckets=1000)          concat(unigrams(title), ...)

The syntax is in :mod:`transforms.comparison.pattern_parser` and in ``docs/patterns.md``. A pattern itself has no canonical
form: it is compared with canonical components as it is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from transforms.comparison.alignment import is_commutative, is_variadic
from transforms.comparison.pattern_parser import parse_term
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
    term_text,
)
from transforms.graphs.graph import Artifact, Literal, Node, Operation, RawColumn, topological
from transforms.graphs.programs import PROGRAMS, program_keywords, program_params
from transforms.graphs.programs import Constant as Found
from transforms.operators import REGISTRY
from transforms.operators.declaration import Scalar
from transforms.types import DType

_Known = dict[tuple[int, str], bool]


@dataclass(frozen=True)
class Pattern:
    """A pattern of one node and the graph under it. Two patterns are equal if their texts are."""

    term: Term

    @staticmethod
    def parse(text: str) -> Pattern:
        """The pattern of ``text``; nothing in it is evaluated.

        Raises :class:`~transforms.errors.InputError`, with the character, for wrong syntax, unknown operators and
        parameters, and arguments or values that no component can have there.
        """
        return Pattern(parse_term(text))

    @property
    def text(self) -> str:
        """The text of the pattern; parsing it gives an equal pattern."""
        return term_text(self.term)

    def __str__(self) -> str:
        return self.text

    def matches(self, node: Node) -> bool:
        """Whether ``node`` itself, not one under it, matches."""
        return _matches(self.term, node, {})

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators of every component with a match."""
        return frozenset(term.operator for term in self._terms if isinstance(term, Call) and term.operator)

    @cached_property
    def operator_versions(self) -> frozenset[tuple[str, int]]:
        """The versions of :attr:`operators` that the pattern states."""
        calls = (term for term in self._terms if isinstance(term, Call))
        return frozenset((call.operator, call.version) for call in calls if call.operator and call.version)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The raw columns that every component with a match reads."""
        return frozenset(term.name for term in self._terms if isinstance(term, ColumnTerm))

    @cached_property
    def fingerprints(self) -> frozenset[str]:
        """Prefixes of the identities of nodes in every component with a match."""
        return frozenset(term.prefix for term in self._terms if isinstance(term, Fingerprint))

    @cached_property
    def artifacts(self) -> frozenset[str]:
        """Prefixes of the digests of artifacts in every component with a match."""
        return frozenset(term.prefix for term in self._terms if isinstance(term, ArtifactDigest))

    @cached_property
    def is_by_names(self) -> bool:
        """Whether components with operators of today's versions have a match exactly if they read :attr:`columns` and apply :attr:`operators`.

        So it is for a column, and for an operator over any arguments, such as ``hash_buckets(_)``.
        """
        match self.term:
            case Anything() | ColumnTerm():
                return True
            case Call(operator=str(name), params=(), program="") if name not in PROGRAMS:
                return all(isinstance(arg, Anything) for arg in self.term.args) and takes_any(name, self.term)
            case _:
                return False

    @cached_property
    def _terms(self) -> tuple[Term, ...]:
        return tuple(_terms(self.term))


def find(pattern: Pattern, root: Node) -> tuple[Node, ...]:
    """Every node under ``root`` that matches, each once, arguments before their readers."""
    known: _Known = {}
    return tuple(node for node in topological([root]) if _matches(pattern.term, node, known))


def takes_any(operator: str, call: Call) -> bool:
    """Whether a call with arguments ``_`` stands for every application of today's version of an operator."""
    args = REGISTRY[operator].args
    if call.version not in (None, REGISTRY[operator].version):
        return False
    least = len(args) - 1 if is_variadic(operator) else len(args)
    return len(call.args) <= least if call.further else not is_variadic(operator)


class PatternFinder:
    """Looks for a pattern in many components; a node that several components have is compared once.

    ``kept_nodes``: the most answers that are kept; then all of them are forgotten.
    """

    def __init__(self, pattern: Pattern, kept_nodes: int = 200_000) -> None:
        self._pattern, self._kept_nodes = pattern, kept_nodes
        self._known: _Known = {}
        self._without: set[str] = set()

    def is_in(self, root: Node) -> bool:
        """Whether any node of this component matches."""
        if len(self._without) + len(self._known) > self._kept_nodes:
            self._without.clear()
            self._known.clear()
        for node in topological([root], self._without):
            if _matches(self._pattern.term, node, self._known):
                return True
            self._without.add(node.identity)
        return False


def _terms(term: Term) -> Iterator[Term]:
    stack = [term]
    while stack:
        term = stack.pop()
        yield term
        if isinstance(term, Call):
            stack.extend(term.args)


def _matches(term: Term, node: Node, known: _Known) -> bool:
    """Compare each term with each node at most once, as deep as the pattern."""
    key = (id(term), node.identity)
    if key not in known:
        known[key] = _is_like(term, node, known)
    return known[key]


def _is_like(term: Term, node: Node, known: _Known) -> bool:
    match term:
        case Anything():
            return True
        case ColumnTerm(name=name):
            return isinstance(node, RawColumn) and node.name == name
        case Constant(value=value):
            return isinstance(node, Literal) and _equal(value, node.value)
        case Moment(microseconds=microseconds):
            return isinstance(node, Literal) and node.type.dtype is DType.TIMESTAMP and node.value == microseconds
        case Fingerprint(prefix=prefix):
            return node.identity.startswith(prefix)
        case ArtifactDigest(prefix=prefix):
            return isinstance(node, Artifact) and node.digest.startswith(prefix)
        case Call():
            return isinstance(node, Operation) and _is_call(term, node) and _arguments_match(term, node, known)


def _is_call(call: Call, node: Operation) -> bool:
    """Whether operator, version and parameters match."""
    if call.operator not in (None, node.op) or call.version not in (None, node.version):
        return False
    params = dict(node.params)
    if node.op in PROGRAMS and call.operator is not None:
        return _is_program(call, node.op, params)
    return all(name in params and _value_matches(value, params[name]) for name, value in call.params)


def _is_program(call: Call, op: str, params: Mapping[str, Scalar]) -> bool:
    """Whether a function or graph has this printed name and these parameters."""
    (name, *_), keywords = program_params(op, params) or [""], program_keywords(op, params)
    return call.program in ("", name) and all(
        key in keywords and _value_matches(value, keywords[key]) for key, value in call.params
    )


def _arguments_match(call: Call, node: Operation, known: _Known) -> bool:
    terms, args = call.args, node.args
    if len(terms) > len(args) or (len(terms) < len(args) and not call.further):
        return False
    if not is_commutative(node.op):
        return all(_matches(term, arg, known) for term, arg in zip(terms, args, strict=False))
    return _assignable([[i for i, arg in enumerate(args) if _matches(term, arg, known)] for term in terms])


def _assignable(fitting: Sequence[Sequence[int]]) -> bool:
    """Whether every term can have an argument of its own: bipartite matching by augmenting paths, breadth first."""
    owner: dict[int, int] = {}
    for first in range(len(fitting)):
        came_from: dict[int, int] = {}  # argument to the term that reached it
        waiting = [first]
        free = None
        for term in waiting:
            for arg in fitting[term]:
                if arg not in came_from:
                    came_from[arg] = term
                    if arg not in owner:
                        free = arg
                        break
                    waiting.append(owner[arg])
            if free is not None:
                break
        if free is None:
            return False
        has = {term: arg for arg, term in owner.items()}
        while free is not None:
            term = came_from[free]
            owner[free], free = term, has.get(term)
    return True


def _value_matches(value: Value, found: Found) -> bool:
    match value:
        case Anything():
            return True
        case Constant(value=constant):
            return not isinstance(found, tuple) and _equal(constant, found)
        case Several(items=items, count=count):
            if not isinstance(found, tuple) or len(found) != (len(items) if count is None else count):
                return False
            return all(_value_matches(item, each) for item, each in zip(items, found, strict=False))


def _equal(value: bool | int | float | str | None, found: bool | int | float | str | None) -> bool:
    """Equal by value: 3 and 3.0 are, True and 1 are not, and NaN is itself."""
    if isinstance(value, bool) or isinstance(found, bool):
        return value is found
    if isinstance(value, float) and isinstance(found, float) and math.isnan(value):
        return math.isnan(found)
    return value == found
