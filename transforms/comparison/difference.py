"""The difference between two components, change by change, to explain why a memo was not found.

    hash_buckets: buckets 100 instead of 1000
    lower() inserted around column query

A change of a node that is read in several places is one change. :mod:`transforms.comparison.alignment` finds the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from transforms.comparison.alignment import WORK_MAX, Alignment, Step, Way, changed_params, label_of
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Artifact, Literal, Node, Operation, RawColumn, topological
from transforms.graphs.programs import PROGRAMS, program_params
from transforms.render.text import column_text, expression_texts, literal_text, node_params, param_text

_TEXT_CHARACTERS = 80


class GraphChangeKind(StrEnum):
    """The kinds of changes."""

    OPERATOR = "operator"
    VERSION = "version"
    PARAMETER = "parameter"
    COLUMN = "column"
    COLUMN_TYPE = "column_type"
    LITERAL = "literal"
    ARTIFACT = "artifact"
    RESULT_TYPE = "result_type"
    ORDER = "order"
    ARGUMENT_ADDED = "argument_added"
    ARGUMENT_REMOVED = "argument_removed"
    INSERTED = "inserted"
    REMOVED = "removed"
    SUBGRAPH = "subgraph"


@dataclass(frozen=True, slots=True)
class GraphChange:
    """One change.

    Attributes:
        where: the expression that it is in, or that a wrapper is around; empty at the root.
        before: the old text; empty if there is none.
        after: the new text; empty if there is none.
        operator: the operator that changes.
        name: the parameter or the column that changes.
        weight: 1; 2 for another operator; the number of nodes that are added, removed or replaced.
    """

    kind: GraphChangeKind
    where: str
    before: str
    after: str
    operator: str = ""
    name: str = ""
    weight: int = 1

    @property
    def sentence(self) -> str:
        """The change as a short sentence with both sides."""
        place = f" in {self.where}" if self.where else ""
        instead = f"{self.after or 'nothing'} instead of {self.before or 'nothing'}"
        match self.kind:
            case GraphChangeKind.PARAMETER:
                return f"{self.operator}: {self.name} {instead}"
            case GraphChangeKind.VERSION:
                return f"{self.operator}: version {instead}"
            case GraphChangeKind.RESULT_TYPE:
                return f"{self.operator}: result {instead}"
            case GraphChangeKind.ORDER:
                return f"{self.operator}: arguments {instead}"
            case GraphChangeKind.COLUMN_TYPE:
                return f"column {column_text(self.name)}: {instead}"
            case GraphChangeKind.ARGUMENT_ADDED:
                return f"{self.operator}: argument {self.after} added"
            case GraphChangeKind.ARGUMENT_REMOVED:
                return f"{self.operator}: argument {self.before} removed"
            case GraphChangeKind.INSERTED:
                return f"{self.after} inserted around {self.where}"
            case GraphChangeKind.REMOVED:
                return f"{self.before} removed around {self.where}"
            case GraphChangeKind.COLUMN | GraphChangeKind.LITERAL | GraphChangeKind.ARTIFACT:
                return f"{self.kind} {instead}{place}"
            case _:
                return instead + place

    def to_document(self) -> dict[str, object]:
        """The change as a JSON object. Sides that do not exist are null."""
        return {
            "kind": self.kind.value,
            "where": self.where,
            "operator": self.operator or None,
            "name": self.name or None,
            "before": self.before or None,
            "after": self.after or None,
            "weight": self.weight,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes from one component to another, root first; none if and only if they are equal."""

    before: str
    after: str
    changes: tuple[GraphChange, ...]

    @property
    def distance(self) -> float:
        """The sum of the changes' weights: 0 for equal components; the same both ways."""
        return float(sum(change.weight for change in self.changes))

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for every change."""
        return tuple(change.sentence for change in self.changes)

    def to_document(self) -> dict[str, object]:
        """The difference as a JSON object; ``before`` and ``after`` are the components' fingerprints."""
        changes = [change.to_document() for change in self.changes]
        return {"before": self.before, "after": self.after, "distance": self.distance, "changes": changes}


@dataclass(frozen=True, slots=True)
class Nearest:
    """The candidate of the least difference. ``difference`` leads from the candidate to the component."""

    name: str
    component: Node
    difference: Difference


def difference(before: Node, after: Node, *, work_max: int = WORK_MAX) -> Difference:
    """The changes from ``before`` to ``after``, which must be canonical.

    Deterministic. The changes are few, but not always the fewest: ``work_max`` limits the search, so that graphs of
    thousands of nodes take seconds at most (:mod:`transforms.comparison.alignment`).
    """
    changes = tuple(_Walk(before, after, work_max).changes()) if before != after else ()
    return Difference(before.identity, after.identity, changes)


def distance(before: Node, after: Node) -> float:
    """:attr:`Difference.distance`, for ranking."""
    return difference(before, after).distance


def nearest_component(target: Node, candidates: Iterable[tuple[str, Node]]) -> Nearest | None:
    """The candidate, a name and a component, of the least distance to ``target``; None without candidates.

    Ties are broken by the number of changes, then by name, then by identity. A lower bound from the labels skips
    candidates that cannot be nearer than the best one.
    """
    labels = _labels(target)
    ranked = sorted(
        ((_least(labels, _labels(node)), name, node) for name, node in candidates),
        key=lambda each: (each[0], each[1], each[2].identity),
    )
    best: Nearest | None = None
    best_key: tuple[float, int, str, str] | None = None
    for least, name, node in ranked:
        if best is not None and least > best.difference.distance:
            break
        found = difference(node, target)
        key = (found.distance, len(found.changes), name, node.identity)
        if best_key is None or key < best_key:
            best, best_key = Nearest(name, node, found), key
    return best


def _labels(root: Node) -> frozenset[str]:
    return frozenset(label_of(node) for node in topological([root]))


def _least(here: frozenset[str], there: frozenset[str]) -> int:
    """A lower bound of the distance: a change removes as many labels as it weighs, or one."""
    return max(len(here - there), len(there - here))


class _Walk:
    """The changes along an alignment from the lesser identity to the greater, so that both directions agree."""

    def __init__(self, before: Node, after: Node, work_max: int) -> None:
        self._roots = before, after
        self._turned = after.identity < before.identity
        self._alignment = Alignment(*((after, before) if self._turned else (before, after)), work_max)
        self._texts = expression_texts((before, after), _TEXT_CHARACTERS)
        self._nodes = sum(1 for _ in topological((before, after)))

    def changes(self) -> Iterator[GraphChange]:
        """The changes of every pair of nodes, once each, root first."""
        stack: list[tuple[Node, Node, str]] = [(*self._roots, "")]
        seen: set[tuple[str, str]] = set()
        while stack:
            before, after, where = stack.pop()
            if before == after or (before.identity, after.identity) in seen:
                continue
            seen.add((before.identity, after.identity))
            step = self._step(before, after)
            yield from self._own(before, after, step, where)
            stack.extend(reversed(self._below(before, after, step, where)))

    def _step(self, before: Node, after: Node) -> Step:
        if not self._turned:
            return self._alignment.step(before, after)
        step = self._alignment.step(after, before)
        turned = {Way.INSERT: Way.DELETE, Way.DELETE: Way.INSERT}.get(step.way, step.way)
        matched = sorted(((i, j) for j, i in step.matched), key=lambda pair: (pair[0] is None, pair))
        return Step(step.cost, turned, step.kept, tuple(matched))

    def _below(self, before: Node, after: Node, step: Step, where: str) -> list[tuple[Node, Node, str]]:
        """The pairs that a step leads to, each with its enclosing expression."""
        match step.way:
            case Way.INSERT:
                return [(before, after.args[step.kept], self._text(after))]
            case Way.DELETE:
                return [(before.args[step.kept], after, where)]
            case _:
                pairs = [(i, j) for i, j in step.matched if i is not None and j is not None]
                return [(before.args[i], after.args[j], self._text(after)) for i, j in pairs]

    def _own(self, before: Node, after: Node, step: Step, where: str) -> Iterator[GraphChange]:
        match step.way:
            case Way.RELABEL:
                yield _leaf_change(before, after, where)
            case Way.INSERT:
                yield self._wrapped(GraphChangeKind.INSERTED, after, step.kept, before)
            case Way.DELETE:
                yield self._wrapped(GraphChangeKind.REMOVED, before, step.kept, after)
            case Way.REPLACE:
                texts = _told_apart(self._text(before), self._text(after), before, after)
                weight = 1 + max(self._weight(before), self._weight(after))
                yield GraphChange(GraphChangeKind.SUBGRAPH, where, *texts, weight=weight)
            case Way.ALIGN if isinstance(before, Operation) and isinstance(after, Operation):
                yield from self._aligned(before, after, step, where)

    def _aligned(self, before: Operation, after: Operation, step: Step, where: str) -> Iterator[GraphChange]:
        here = self._text(after)
        own = list(_label_changes(before, after, where, here))
        yield from own
        for i, j in step.matched:
            if j is None and i is not None:
                gone = before.args[i]
                yield GraphChange(
                    GraphChangeKind.ARGUMENT_REMOVED, here, self._place(gone), "", after.op, weight=self._weight(gone)
                )
            elif i is None and j is not None:
                new = after.args[j]
                yield GraphChange(
                    GraphChangeKind.ARGUMENT_ADDED, here, "", self._place(new), after.op, weight=self._weight(new)
                )
        if not own and all(
            i is not None and j is not None and before.args[i] == after.args[j] for i, j in step.matched
        ):
            if before.type != after.type:
                yield GraphChange(GraphChangeKind.RESULT_TYPE, here, str(before.type), str(after.type), after.op)
            else:
                first, then = (f"({', '.join(map(self._text, node.args))})" for node in (before, after))
                yield GraphChange(GraphChangeKind.ORDER, here, *_told_apart(first, then, before, after), after.op)

    def _wrapped(self, kind: GraphChangeKind, wrapper: Node, kept: int, inside: Node) -> GraphChange:
        """``wrapper`` is inserted around, or removed from around, its argument ``kept``."""
        assert isinstance(wrapper, Operation)
        args = ["_" if i == kept else self._text(arg) for i, arg in enumerate(wrapper.args)]
        params = node_params(wrapper)
        text = f"{wrapper.op}({', '.join([*(args if len(args) > 1 else []), *([params] if params else [])])})"
        text = _cut(text)
        before, after = ("", text) if kind is GraphChangeKind.INSERTED else (text, "")
        weight = self._weight(wrapper, wrapper.args[kept])
        return GraphChange(kind, self._place(inside), before, after, wrapper.op, weight=weight)

    def _text(self, node: Node) -> str:
        return self._texts[node.identity]

    def _place(self, node: Node) -> str:
        return f"column {self._text(node)}" if isinstance(node, RawColumn) else self._text(node)

    def _weight(self, node: Node, without: Node | None = None) -> int:
        """The nodes of a tree without those of one part; at most all distinct nodes."""
        sizes = self._alignment.profiles
        return min(sizes[node.identity].size - (sizes[without.identity].size if without else 0), self._nodes)


def _label_changes(before: Operation, after: Operation, where: str, here: str) -> Iterator[GraphChange]:
    if before.op != after.op:
        yield GraphChange(GraphChangeKind.OPERATOR, where or here, before.op, after.op, after.op, weight=2)
        return
    if before.version != after.version:
        yield GraphChange(GraphChangeKind.VERSION, here, str(before.version), str(after.version), after.op)
    for name in changed_params(before, after):
        texts = _told_apart(
            _param(before, name), _param(after, name), dict(before.params).get(name), dict(after.params).get(name)
        )
        yield GraphChange(GraphChangeKind.PARAMETER, here, *texts, after.op, name)


def _param(node: Operation, name: str) -> str:
    params = dict(node.params)
    if name not in params:
        return ""
    program = program_params(node.op, params) if PROGRAMS.get(node.op) == name else None
    return program[0] if program else param_text(params[name])


def _leaf_change(before: Node, after: Node, where: str) -> GraphChange:
    match before, after:
        case RawColumn(), RawColumn():
            if before.name == after.name:
                return GraphChange(
                    GraphChangeKind.COLUMN_TYPE, where, str(before.type), str(after.type), name=after.name
                )
            texts = column_text(before.name), column_text(after.name)
            return GraphChange(GraphChangeKind.COLUMN, where, *_typed(*texts, before, after), name=after.name)
        case Literal(), Literal():
            texts = literal_text(before), literal_text(after)
            return GraphChange(GraphChangeKind.LITERAL, where, *_typed(*texts, before, after))
        case Artifact(), Artifact():
            texts = before.digest[:12], after.digest[:12]
            return GraphChange(GraphChangeKind.ARTIFACT, where, *_typed(*texts, before, after))
        case _:
            raise AssertionError("leaves of one kind")


def _typed(before_text: str, after_text: str, before: Node, after: Node) -> tuple[str, str]:
    """The texts of two leaves, with their types where these differ."""
    if before.type != after.type:
        before_text, after_text = f"{before_text} ({before.type})", f"{after_text} ({after.type})"
    return _told_apart(before_text, after_text, before, after)


def _told_apart(before_text: str, after_text: str, before: object, after: object) -> tuple[str, str]:
    """Two texts, truncated; equal ones with the first digits of their values' digests."""
    before_text, after_text = _cut(before_text), _cut(after_text)
    if before_text != after_text:
        return before_text, after_text
    return f"{before_text} #{_mark(before)}", f"{after_text} #{_mark(after)}"


def _mark(value: object) -> str:
    return (value.identity if isinstance(value, Node) else digest(value))[:8]


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARACTERS else text[: _TEXT_CHARACTERS - 1] + "…"
