"""Nested associative operations: ``f(f(a, b), c)`` as one list of arguments, built only once.

A chain of n nested operations has n prefixes; building the arguments of each would take n² steps. A :class:`Chain` keeps
the operations as written, and its arguments are collected when another operation reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from transforms.errors import InputError
from transforms.graphs.folding import is_held, promoted_literal, result_of
from transforms.graphs.graph import Literal, Node, Operation
from transforms.operators import REGISTRY
from transforms.operators.declaration import Law
from transforms.types import ColumnType, Dense

#: The maximum number of arguments of one operation: a list concatenated with itself 20 times over is a million lists.
ARGUMENTS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """An associative operation whose arguments are not collected yet.

    Attributes:
        outermost: the operation as written; the chain has its type, parameters and version.
        parts: its canonical arguments, including chains of the same operation.
        size: the number of arguments with repetitions, at most one more than ``ARGUMENTS_MAX``.
    """

    outermost: Operation
    parts: tuple[Node | Chain, ...]
    size: int

    @property
    def type(self) -> ColumnType:
        """The type of the operation."""
        return self.outermost.type

    @property
    def op(self) -> str:
        """The name of the operator."""
        return self.outermost.op


def make_chain(node: Operation, parts: tuple[Node | Chain, ...]) -> Chain:
    """The chain of an operation over canonical parts. Raises :class:`InputError` for too many arguments."""
    size = min(sum(part.size if isinstance(part, Chain) else 1 for part in parts), ARGUMENTS_MAX + 1)
    if size > ARGUMENTS_MAX and Law.IDEMPOTENT_ARGUMENTS not in REGISTRY[node.op].laws:
        raise InputError(f"{node.op} must have at most {ARGUMENTS_MAX:,} arguments, got more", where=f"operator {node.op}",
                         allowed=f"{ARGUMENTS_MAX:,} arguments, those of the same operator inside it counted",
                         next_step="do not join a list with itself over and over")  # fmt: skip
    return Chain(node, parts, size)


def is_associative(node: Operation) -> bool:
    """Whether ``f(f(a, b), c)`` is ``f(a, b, c)`` for this operation.

    Not over the items of a list if f gives a value for a null: ``f(list, b)`` drops items that ``f(list, b, c)`` keeps.
    """
    operator = REGISTRY[node.op]
    if Law.ASSOCIATIVE not in operator.laws or operator.version != node.version:
        return False
    return operator.nulls != "see" or operator.lifted([arg.type for arg in node.operands]) is None


def is_same_operation(node: Node | Chain, other: Operation) -> bool:
    """Whether a part of ``other`` is the same operation, so that its arguments are arguments of ``other``.

    Its type may differ: numbers are promoted to a common type in any order.
    """
    if not isinstance(node, Chain):
        return False
    inner = node.outermost
    return (inner.op, inner.version, inner.params) == (other.op, other.version, other.params)


def arguments(chain: Chain) -> tuple[Node, ...]:
    """The arguments of the whole chain, deduplicated and sorted as the operator's laws allow."""
    node, laws = chain.outermost, REGISTRY[chain.op].laws
    found: Sequence[Node] = [_promoted(part, node) for part in _parts(chain)]
    if Law.IDEMPOTENT_ARGUMENTS in laws:
        found = list(dict.fromkeys(found))
    if Law.COMMUTATIVE in laws:
        found = sorted(found, key=lambda arg: (not isinstance(arg, Literal), arg.identity))
    found = _with_literals_folded(found, node)
    if Law.COMMUTATIVE in laws:
        found = sorted(found, key=lambda arg: arg.identity)
    if Law.IDEMPOTENT_ARGUMENTS in laws and len(found) == 1 and _takes_two(node, found[0]):
        found = [*found, *found]
    return tuple(found)


def _parts(chain: Chain) -> list[Node]:
    """The arguments from left to right, without repeated chains if arguments are idempotent."""
    once = Law.IDEMPOTENT_ARGUMENTS in REGISTRY[chain.op].laws
    seen: set[Chain] = set()
    found: list[Node] = []
    ahead: list[Node | Chain] = [chain]
    while ahead:
        part = ahead.pop()
        if isinstance(part, Node):
            found.append(part)
        elif part not in seen:
            ahead.extend(reversed(part.parts))
            if once:
                seen.add(part)
    return found


def _promoted(part: Node, node: Operation) -> Node:
    return promoted_literal(part, node.type.dtype) if isinstance(part, Literal) else part


def _with_literals_folded(found: Sequence[Node], node: Operation) -> list[Node]:
    """The arguments with adjacent literals folded, where a literal can hold the result."""
    gives = Dense(node.type.dtype)
    if not is_held(node.type):
        return list(found)
    kept: list[Node] = []
    for are_literals, run in groupby(found, lambda arg: isinstance(arg, Literal) and arg.type == gives):
        side_by_side = list(run)
        literals = [arg for arg in side_by_side if isinstance(arg, Literal)]
        one = result_of(node, literals, gives) if are_literals and len(literals) > 1 else None
        kept += side_by_side if one is None else [one]
    return kept


def _takes_two(node: Operation, arg: Node) -> bool:
    """``f(a)`` is written ``f(a, a)``, except for a literal and for the items of a list."""
    return not isinstance(arg, Literal) and REGISTRY[node.op].lifted([arg.type]) is None
