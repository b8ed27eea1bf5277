"""What a pattern needs of single nodes, as texts that an index can hold: a component without them has no match and need not be read.

A *fact* states one argument of an operation (``unigrams(*=lower)``: one of its arguments is the result of ``lower``), the same with its place
(``cross(1=column 'title')``), a parameter (``hash_buckets.buckets=1000``), or the number of arguments of an operator that takes any number
(``concat#3``). A catalog stores those of each subgraph. Operators whose parameters are programs have no facts of parameters, and facts leave out
versions and types.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from transforms.comparison.alignment import is_commutative, is_variadic
from transforms.comparison.pattern import Pattern, takes_any
from transforms.comparison.pattern_terms import Anything, Call, ColumnTerm, Constant, Term
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Literal, Node, Operation, RawColumn
from transforms.graphs.programs import PROGRAMS
from transforms.operators import REGISTRY

#: Characters of the longest fact; a longer one is stored as its digest, which has as many.
MOST_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class PatternFacts:
    """What every match of a pattern has.

    Attributes:
        nodes: The facts of one node each; a component with a match has such a node for each of them.
        is_whole: Whether a component has a match exactly if it has one node with all facts of the only item of ``nodes``. It holds for
            components whose operators of the pattern have today's versions.
    """

    nodes: tuple[frozenset[str], ...]
    is_whole: bool


def node_facts(node: Operation) -> frozenset[str]:
    """The facts of an operation."""
    found = [f"{node.op}#{len(node.args)}"] if is_variadic(node.op) else []
    for place, arg in enumerate(node.args):
        if (spelled := _spelled_node(arg)) is not None:
            found.append(f"{node.op}(*={spelled})")
            if not _takes_one(node.op):
                found.append(f"{node.op}({place}={spelled})")
    if node.op not in PROGRAMS:
        found += [f"{node.op}.{name}={_spelled(value)}" for name, value in node.params if not isinstance(value, tuple)]
    return frozenset(map(_stored, found))


def pattern_facts(pattern: Pattern) -> PatternFacts:
    """The facts of a pattern, for catalogs whose operators have today's versions."""
    whole = _facts(pattern.term) if isinstance(pattern.term, Call) else None
    if whole is not None and whole[0] and whole[1]:
        return PatternFacts((whole[0],), is_whole=True)
    nodes = {_facts(call)[0] for call in _calls(pattern.term)}
    return PatternFacts(tuple(sorted((facts for facts in nodes if facts), key=sorted)), is_whole=False)


def _calls(term: Term) -> Iterator[Call]:
    stack = [term]
    while stack:
        term = stack.pop()
        if isinstance(term, Call):
            yield term
            stack += term.args


def _facts(call: Call) -> tuple[frozenset[str], bool]:
    """The facts of a node that matches a call, and whether each node with them, of today's versions, matches."""
    name = call.operator
    if name is None or name in PROGRAMS:
        return frozenset(), False
    is_whole = _is_today(call) and not call.program
    placed = not is_commutative(name) and not _takes_one(name)
    found: set[str] = set()
    least = len(REGISTRY[name].args) - (1 if is_variadic(name) else 0)  # arguments that every application has
    for place, term in enumerate(call.args):
        spelled, all_of_it = _spelled_term(term)
        is_whole = is_whole and all_of_it
        if spelled is not None:
            found.add(f"{name}({place if placed else '*'}={spelled})")
            least = max(least, place + 1 if placed else 1)
    if is_variadic(name) and not call.further:
        found.add(f"{name}#{len(call.args)}")
    elif len(call.args) > least or not (call.further or len(call.args) == least):
        is_whole = False
    if is_commutative(name) and sum(not isinstance(term, Anything) for term in call.args) > 1:
        is_whole = False  # one argument may have the facts of both
    for key, value in call.params:
        if isinstance(value, Constant):
            found.add(f"{name}.{key}={_spelled(value.value)}")
        else:
            is_whole = False
    return frozenset(map(_stored, found)), is_whole


def _spelled_term(term: Term) -> tuple[str | None, bool]:
    """How facts name a node that matches a term, None if they do not, and whether each node of that name matches."""
    match term:
        case Anything():
            return None, True
        case ColumnTerm(name=name):
            return f"column {name!r}", True
        case Constant(value=value):
            return f"value {_spelled(value)}", True
        case Call(operator=str(name)):
            return name, name not in PROGRAMS and not term.params and not term.program and all(
                isinstance(arg, Anything) for arg in term.args
            ) and takes_any(name, term)  # fmt: skip
        case _:
            return None, False


def _spelled_node(node: Node) -> str | None:
    match node:
        case RawColumn(name=name):
            return f"column {name!r}"
        case Literal(value=value):
            return f"value {_spelled(value)}"
        case Operation(op=op):
            return op
        case _:
            return None


def _spelled(value: object) -> str:
    """A value's text: equal for values that a pattern holds for equal, and for no others."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return repr(value)


def _takes_one(operator: str) -> bool:
    """Whether an operator takes exactly one argument, whose place says nothing."""
    return operator in REGISTRY and len(REGISTRY[operator].args) == 1 and not is_variadic(operator)


def _is_today(call: Call) -> bool:
    return call.operator is not None and call.version in (None, REGISTRY[call.operator].version)


def _stored(fact: str) -> str:
    return fact if len(fact) <= MOST_CHARACTERS and fact.isascii() else digest(fact)
