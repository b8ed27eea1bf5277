"""The canonical form: a component after all rewrites that cannot change its output.

A rule is a small named function from an operation with canonical arguments to its replacement or None. Rules rely only on
laws that hold bit for bit and that the property tests check. A rule applies only to the version of the operator that it
names: an operation of another release stays unchanged. A graph has no names given by users; common subexpressions are one
node by construction; nodes without readers are not reached.

The work is linear in nodes and arguments: a node is visited once, and only the outermost of nested associative operations
is built (:mod:`transforms.graphs.associative`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transforms.errors import InputError
from transforms.graphs.associative import Chain, arguments, is_associative, is_same_operation, make_chain
from transforms.graphs.folding import fold_literals
from transforms.graphs.graph import Node, Operation, topological
from transforms.operators import REGISTRY
from transforms.operators.declaration import Law

Rule = Callable[[Operation], Node | None]


def canonicalize(root: Node) -> Node:
    """The canonical form of a component. Applying it twice changes nothing. Deterministic in every process.

    Raises :class:`InputError` for an operator that is not registered.
    """
    return CanonicalForms().of(root)


class CanonicalForms:
    """The canonical forms of components that may share nodes.

    Attributes:
        visited: nodes visited, once each however many components hold them.
        encoded: arguments of the operations that were built, from which their identities are computed.
    """

    def __init__(self) -> None:
        self.visited = 0
        self.encoded = 0
        self._forms: dict[str, Node | Chain] = {}
        self._built: dict[Chain, Node] = {}

    def of(self, root: Node) -> Node:
        """The canonical form of one component; see :func:`canonicalize`."""
        for node in topological([root], known=self._forms):
            self.visited += 1
            self._forms[node.identity] = self._form(node)
        return self._node(self._forms[root.identity])

    def _form(self, node: Node) -> Node | Chain:
        if not isinstance(node, Operation):
            return node
        forms = [self._forms[arg.identity] for arg in node.operands]
        if is_identity(node, forms):
            return forms[0]
        if is_associative(node):
            parts = (form if is_same_operation(form, node) else self._node(form) for form in forms)
            return make_chain(node, tuple(parts))
        return self._rewritten(node, tuple(self._node(form) for form in forms))

    def _node(self, form: Node | Chain) -> Node:
        """The node of a form; a chain is built when it is first read."""
        if isinstance(form, Node):
            return form
        if form not in self._built:
            self._built[form] = self._rewritten(form.outermost, arguments(form))
        return self._built[form]

    def _rewritten(self, node: Operation, operands: tuple[Node, ...]) -> Node:
        current: Node = node
        if operands != node.operands:  # most nodes are canonical already, and an identity is expensive
            self.encoded += len(operands)
            current = _with_operands(node, operands)
        while isinstance(current, Operation):
            replacement = next((new for rule in RULES if (new := rule(current)) is not None), None)
            if replacement is None:
                break
            self.encoded += len(replacement.args)
            current = replacement
        return current


def _with_operands(node: Operation, operands: tuple[Node, ...]) -> Operation:
    return Operation(node.type, node.op, node.version, operands, node.params)


def _laws(node: Operation) -> frozenset[Law]:
    """The laws of the operator; none for another version."""
    operator = REGISTRY[node.op]
    return operator.laws if operator.version == node.version else frozenset()


#: The operators of the rules, with the versions that the rules rely on.
_CAST, _CONCAT, _UNIQUE, _HEAD = ("cast", 1), ("concat", 1), ("unique", 1), ("head", 1)
_SETS = frozenset({("intersect", 1), ("union", 1), ("difference", 1)})
NAMED = frozenset({_CAST, _CONCAT, _UNIQUE, _HEAD}) | _SETS


def _operator(form: Node | Chain) -> tuple[str, int] | None:
    node = form.outermost if isinstance(form, Chain) else form
    return (node.op, node.version) if isinstance(node, Operation) else None


def is_identity(node: Operation, forms: Sequence[Node | Chain]) -> bool:
    """Whether an operation returns its argument: a cast to the type it has, one list joined, unique over a set.

    A cast of floats makes every NaN the quiet one; so does reading a column (:mod:`transforms.columns.nans`).
    """
    if len(forms) != 1 or node.type != forms[0].type:
        return False
    operator = _operator(node)
    if operator == _CAST:
        return dict(node.params).get("dtype") == node.type.dtype
    return operator == _CONCAT or (operator == _UNIQUE and _operator(forms[0]) in _SETS)


def collapse_idempotent(node: Operation) -> Node | None:
    """``f(f(a))`` becomes ``f(a)``."""
    if Law.IDEMPOTENT not in _laws(node) or len(node.operands) != 1:
        return None
    inner = node.operands[0]
    if not isinstance(inner, Operation):
        return None
    same = (inner.op, inner.version, inner.params, inner.type) == (node.op, node.version, node.params, node.type)
    return inner if same else None


def merge_heads(node: Operation) -> Node | None:
    """``head(head(a, m), n)`` becomes ``head(a, min(m, n))``."""
    inner = node.operands[0] if node.operands else None
    if _operator(node) != _HEAD or not isinstance(inner, Operation) or _operator(inner) != _HEAD:
        return None
    shortest = min(node, inner, key=lambda each: _whole(dict(each.params)["n"]))
    return Operation(node.type, node.op, node.version, inner.operands, shortest.params)


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise InputError("the parameter n of head must be a whole number", where="operator head", value=value,
                         allowed="1 or greater", next_step="submit the model again from this release")  # fmt: skip
    return value


def drop_repeated_arguments(node: Operation) -> Node | None:
    """``f(a, b, a)`` becomes ``f(a, b)`` for idempotent arguments; ``f(a, a)`` stays, since ``f(a)`` may differ from a."""
    if Law.IDEMPOTENT_ARGUMENTS not in _laws(node):
        return None
    distinct = tuple(dict.fromkeys(node.operands))
    kept = distinct if len(distinct) > 1 else distinct * 2
    return _with_operands(node, kept) if len(kept) < len(node.operands) else None


def sort_commutative(node: Operation) -> Node | None:
    """Sort the arguments of a commutative operation by identity."""
    if Law.COMMUTATIVE not in _laws(node):
        return None
    ordered = tuple(sorted(node.operands, key=lambda arg: arg.identity))
    return _with_operands(node, ordered) if ordered != node.operands else None


#: The rules in the order of their application; each returns None if it does not apply.
RULES: tuple[Rule, ...] = (fold_literals, collapse_idempotent, merge_heads, drop_repeated_arguments, sort_commutative)
