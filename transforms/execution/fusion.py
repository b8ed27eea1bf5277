"""Operator fusion: components are rewritten before a run, so that several operators become one pass.

The canonical form and the fingerprint define a component; fusion defines only how it runs, so it may change from release
to release. A rule applies to the whole plan: a node with several readers is not fused.

* Hashing before concatenation: ``hash_buckets(concat(a, b))`` is ``concat(hash_buckets(a), hash_buckets(b))``, and ids
  are cheaper to move than text.
* Words that are only compared or hashed are not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from transforms.graphs.graph import Node, Operation, topological
from transforms.operators.declaration import Arg, Imported, Operator, Params, Types
from transforms.operators.signatures import TEXT
from transforms.types import ColumnType, DType, Ragged

_TEXT = Arg("text", dense=TEXT)
_KERNELS = "transforms.kernels.fused"


def _hashed_type(types: Types, params: Params) -> ColumnType:
    buckets = params["buckets"]
    assert isinstance(buckets, int)
    return Ragged(DType.INT64, buckets)


def _not_a_reference(*values: object, **params: object) -> object:
    raise AssertionError("a fused operator means what it was made of")


#: Operators that only plans contain, never an expression or a stored component.
FUSED = {
    operator.name: operator
    for operator in (
        Operator(
            name="common_words",
            version=1,
            family="fused",
            summary="intersect(unigrams(left), unigrams(right)).",
            args=(_TEXT, _TEXT),
            result=lambda types, params: Ragged(DType.STRING),
            reference=_not_a_reference,
            kernel=Imported(_KERNELS, "common_words"),
        ),
        Operator(
            name="hashed_words",
            version=1,
            family="fused",
            summary="hash_buckets(unigrams(text), buckets, salt).",
            args=(_TEXT,),
            result=_hashed_type,
            reference=_not_a_reference,
            kernel=Imported(_KERNELS, "hashed_words"),
        ),
    )
}

#: The operators that each fused one replaces; its seconds are divided among them.
STANDS_FOR = {
    "common_words": ("unigrams", "unigrams", "intersect"),
    "hashed_words": ("unigrams", "hash_buckets"),
}

Rule = Callable[[Operation, Callable[[Node], bool]], Node | None]


def fuse(components: Mapping[str, Node]) -> dict[str, Node]:
    """The components with fused operators, by the same keys; every output stays equal bit for bit."""
    readers = Counter(arg.identity for node in topological(components.values()) for arg in node.args)
    readers.update(root.identity for root in components.values())

    def only_here(node: Node) -> bool:
        return readers[node.identity] == 1

    rewritten: dict[str, Node] = {}
    for node in topological(components.values()):
        rewritten[node.identity] = _rewritten(node, rewritten, only_here)
    return {key: rewritten[root.identity] for key, root in components.items()}


def _rewritten(node: Node, rewritten: Mapping[str, Node], only_here: Callable[[Node], bool]) -> Node:
    if not isinstance(node, Operation):
        return node
    for rule in RULES:
        replacement = rule(node, only_here)
        if replacement is not None:
            return _below(replacement, rewritten, only_here)
    return _with(node, tuple(rewritten[arg.identity] for arg in node.operands))


def _below(node: Node, rewritten: Mapping[str, Node], only_here: Callable[[Node], bool]) -> Node:
    """A replacement whose new nodes are rewritten too; the component's own nodes already are."""
    if not isinstance(node, Operation) or node.identity in rewritten:
        return rewritten.get(node.identity, node)
    for rule in RULES:
        replacement = rule(node, only_here)
        if replacement is not None:
            return _below(replacement, rewritten, only_here)
    return _with(node, tuple(_below(arg, rewritten, only_here) for arg in node.operands))


def _with(node: Operation, operands: tuple[Node, ...]) -> Operation:
    return Operation(node.type, node.op, node.version, operands, node.params)


#: The operators of the rules, with the versions that the rules and the fused kernels rely on.
_HASH, _CONCAT, _WORDS, _COMMON = ("hash_buckets", 1), ("concat", 1), ("unigrams", 1), ("intersect", 1)
FUSABLE = frozenset({_HASH, _CONCAT, _WORDS, _COMMON})


def _is(node: Node, operator: tuple[str, int]) -> bool:
    return isinstance(node, Operation) and (node.op, node.version) == operator


def hash_before_concat(node: Operation, only_here: Callable[[Node], bool]) -> Node | None:
    """Hash each list, then concatenate the ids."""
    if not _is(node, _HASH) or not _is(node.operands[0], _CONCAT) or not only_here(node.operands[0]):
        return None
    joined = node.operands[0]
    assert isinstance(joined, Operation)
    hashed = tuple(_with(node, (arg,)) for arg in joined.operands)
    return Operation(node.type, joined.op, joined.version, hashed, joined.params)


def hash_words(node: Operation, only_here: Callable[[Node], bool]) -> Node | None:
    """Hash words without storing them."""
    if not _is(node, _HASH) or not _is(node.operands[0], _WORDS) or not only_here(node.operands[0]):
        return None
    return Operation(node.type, "hashed_words", 1, node.operands[0].args, node.params)


def intersect_words(node: Operation, only_here: Callable[[Node], bool]) -> Node | None:
    """Intersect the words of two texts without storing them."""
    if not _is(node, _COMMON) or len(node.operands) != 2:
        return None
    if not all(_is(arg, _WORDS) and only_here(arg) for arg in node.operands):
        return None
    return Operation(node.type, "common_words", 1, tuple(arg.args[0] for arg in node.operands), ())


#: The rules in the order of their application.
RULES: tuple[Rule, ...] = (hash_before_concat, hash_words, intersect_words)
