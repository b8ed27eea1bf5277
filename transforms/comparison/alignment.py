"""The search for the changes that turn one component into another, for :mod:`transforms.comparison.difference`.

A pair of nodes is settled in the cheapest way: they are equal; one leaf replaces another of its kind; two operations are
aligned argument by argument; an operation is inserted around the other side, or removed; one node replaces the other.
Arguments are paired by position; those of commutative operators are paired by equality, then at the least total cost. Each
pair is settled once. A lower bound, from the number of occurrences of each label under either node, prunes the search, and
``WORK_MAX`` limits it: a pair beyond the limit counts as replaced. So the time is bounded, and the result depends only on
the graphs.

Costs are those of the graphs as trees: a node counts wherever it is read. They are integers of any size.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from transforms.comparison.assignment import least_assignment
from transforms.graphs.encoding import encode
from transforms.graphs.graph import Node, Operation, topological
from transforms.operators import REGISTRY
from transforms.operators.declaration import Law

#: The cost of one change; smaller amounts rank several changes of one operation after one.
UNIT = 8
#: The work limit of one alignment, in units of about a microsecond: visited pairs and their bounds.
WORK_MAX = 1_000_000
_PAIR_WORK, _BOUND_WORK, _ARGUMENT_WORK = 40, 3, 10
_BINS = 32
_MATRIX_MAX = 10_000
#: Of arguments with at most so many pairs of nodes, the costs decide how those of a commutative operator are paired, of others
#: the lower bounds: to settle two large nodes that have little in common takes most of the work.
_SETTLED_MAX = 10_000
#: Steps of an assignment per unit of work.
_ASSIGNMENT_STEPS = 4

#: The positions of an argument on both sides; None on a side that lacks it.
Matched = tuple[tuple[int | None, int | None], ...]
_Search = Generator[tuple[Node, Node], int, int]
_Pairs = list[tuple[int, int]]


class Way(StrEnum):
    """How a pair of different nodes is settled."""

    RELABEL = "relabel"  # one leaf replaces another of its kind
    ALIGN = "align"  # two operations, argument by argument
    INSERT = "insert"  # the right operation is around the left node
    DELETE = "delete"  # the left operation is around the right node
    REPLACE = "replace"  # otherwise


@dataclass(frozen=True, slots=True)
class Step:
    """How one pair is settled. ``kept`` is the argument of an INSERT or DELETE that is compared next."""

    cost: int
    way: Way
    kept: int = -1
    matched: Matched = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """The tree under a node: number of nodes, label counts by bin, and the shape without parameters and leaves."""

    size: int
    bins: tuple[int, ...]
    shape: int


class Alignment:
    """The alignment of ``left`` and ``right``; :meth:`step` returns it pair by pair. Deterministic.

    ``work`` is the work that was done; it can exceed ``work_max`` by the last pair.
    """

    def __init__(self, left: Node, right: Node, work_max: int = WORK_MAX) -> None:
        self.profiles = profiles((left, right))
        self.work = 0
        self._work_max = work_max
        self._steps: dict[tuple[str, str], Step] = {}
        if left != right:
            self._settle(left, right)

    def step(self, left: Node, right: Node) -> Step:
        """The step for a pair of different nodes that earlier steps led to."""
        return self._steps[left.identity, right.identity]

    def _settle(self, left: Node, right: Node) -> None:
        """Run the searches on an explicit stack, so that depth is not limited."""
        stack = [self._search(left, right)]
        answer: int | None = None
        while stack:
            try:
                asked = stack[-1].send(answer)  # type: ignore[arg-type]
            except StopIteration as done:
                stack.pop()
                answer = done.value
            else:
                stack.append(self._search(*asked))
                answer = None

    def _cost(self, left: Node, right: Node) -> _Search:
        if left.identity == right.identity:
            return 0
        known = self._steps.get((left.identity, right.identity))
        return known.cost if known is not None else (yield left, right)

    @property
    def _exhausted(self) -> bool:
        return self.work > self._work_max

    def _search(self, left: Node, right: Node) -> _Search:
        self.work += _PAIR_WORK
        best = Step(UNIT * (1 + max(self._size(left), self._size(right))), Way.REPLACE)
        if type(left) is type(right) and not isinstance(left, Operation):
            best = Step(UNIT, Way.RELABEL)
        elif not self._exhausted:
            for bound, way, kept in self._ways(left, right, best.cost):
                if bound >= best.cost or (self._exhausted and best.way is not Way.REPLACE):
                    break
                step = yield from self._tried(left, right, way, kept)
                if step.cost < best.cost:
                    best = step
        self._steps[left.identity, right.identity] = best
        return best.cost

    def _ways(self, left: Node, right: Node, below: int) -> list[tuple[int, Way, int]]:
        """The possible ways in the order of their lower bounds, then of their names."""
        ways: list[tuple[int, Way, int]] = []
        if isinstance(left, Operation) and isinstance(right, Operation):
            label = label_cost(left, right)
            ways.append((label + self._bound_of_arguments(left, right, label), Way.ALIGN, -1))
            if self._shape(left) == self._shape(right):
                return ways
        for way, wrapper, other in ((Way.INSERT, right, left), (Way.DELETE, left, right)):
            for position, arg in enumerate(wrapper.args):
                added = UNIT * (self._size(wrapper) - self._size(arg))
                if added + UNIT * abs(self._size(arg) - self._size(other)) < below:
                    ways.append((added + self._bound(arg, other), way, position))
        self.work += _BOUND_WORK * len(ways) + len(left.args) + len(right.args)
        return sorted(ways)

    def _tried(self, left: Node, right: Node, way: Way, kept: int) -> Generator[tuple[Node, Node], int, Step]:
        if way is Way.INSERT:
            added = UNIT * (self._size(right) - self._size(right.args[kept]))
            return Step(added + (yield from self._cost(left, right.args[kept])), way, kept)
        if way is Way.DELETE:
            dropped = UNIT * (self._size(left) - self._size(left.args[kept]))
            return Step(dropped + (yield from self._cost(left.args[kept], right)), way, kept)
        assert isinstance(left, Operation)
        assert isinstance(right, Operation)
        pairs = yield from self._pairs(left, right)
        cost = self._unpaired(left.args, right.args, pairs)
        for i, j in pairs:
            cost += yield from self._cost(left.args[i], right.args[j])
        gone = sorted(set(range(len(left.args))) - {i for i, _ in pairs})
        new = sorted(set(range(len(right.args))) - {j for _, j in pairs})
        # Only the type or the order of arguments differs: one change.
        return Step(label_cost(left, right) + cost or UNIT, way,
                    matched=(*pairs, *((i, None) for i in gone), *((None, j) for j in new)))  # fmt: skip

    def _pairs(self, left: Operation, right: Operation) -> Generator[tuple[Node, Node], int, _Pairs]:
        """The pairs of arguments to compare; the others are added or removed."""
        lefts, rights = left.args, right.args
        if left.op == right.op and is_commutative(left.op):
            return (yield from self._as_sets(lefts, rights))
        in_place = list(zip(range(len(lefts)), range(len(rights)), strict=False))
        if len(lefts) == len(rights) and not (left.op == right.op and is_variadic(left.op)):
            return in_place
        self.work += _ARGUMENT_WORK * (len(lefts) + len(rights))
        shifted: _Pairs = []
        here, there = ([arg.identity for arg in args] for args in (lefts, rights))
        for _, i, i_end, j, j_end in SequenceMatcher(None, here, there, autojunk=False).get_opcodes():
            shifted += zip(range(i, i_end), range(j, j_end), strict=False)
        return min(in_place, shifted, key=lambda pairs: self._least(lefts, rights, pairs))

    def _as_sets(self, lefts: Sequence[Node], rights: Sequence[Node]) -> Generator[tuple[Node, Node], int, _Pairs]:
        """The pairs of arguments of a commutative operator: equal ones first, then those of the least total cost.

        The total of lower bounds ranks the assignments. Of small arguments the pairs of the best one are settled, their costs take
        the place of their bounds, and so on until an assignment of settled pairs is the best: no other one costs less.
        """
        same, rows, columns = _equal_ones(lefts, rights)
        possible = len(rows) * len(columns)
        if possible > _MATRIX_MAX:
            return sorted([*same, *zip(rows, columns, strict=False)])
        if not possible:
            return same
        self.work += _BOUND_WORK * possible
        ones, others = [lefts[i] for i in rows], [rights[j] for j in columns]
        costs = [[self._bound(one, other) for other in others] for one in ones]
        is_small = sum(map(self._size, ones)) * sum(map(self._size, others)) <= _SETTLED_MAX
        while True:
            chosen = self._least_pairs(ones, others, costs)
            if not is_small or self._exhausted:
                break
            before = [costs[i][j] for i, j in chosen]
            for i, j in chosen:
                costs[i][j] = yield from self._cost(ones[i], others[j])
            if before == [costs[i][j] for i, j in chosen]:
                break
        return sorted([*same, *((rows[i], columns[j]) for i, j in chosen)])

    def _least_pairs(self, ones: Sequence[Node], others: Sequence[Node], costs: Sequence[Sequence[int]]) -> _Pairs:
        """The assignment of the least cost, with that of unpaired nodes; of equal ones that of most equal shapes, then labels."""
        self.work += len(ones) * len(others) * min(len(ones), len(others)) // _ASSIGNMENT_STEPS
        ranks = 1 + max(len(ones), len(others))
        spared = [UNIT * self._size(one) if len(ones) > len(others) else 0 for one in ones]
        spared_of_others = [UNIT * self._size(other) if len(others) > len(ones) else 0 for other in others]
        return least_assignment(
            [
                [
                    ((cost - spared[i] - spared_of_others[j]) * ranks + (self._shape(ones[i]) != self._shape(other)))
                    * ranks
                    + (label_of(ones[i]) != label_of(other))
                    for j, (other, cost) in enumerate(zip(others, row, strict=True))
                ]
                for i, row in enumerate(costs)
            ]
        )

    def _least(self, lefts: Sequence[Node], rights: Sequence[Node], pairs: _Pairs) -> int:
        """A lower bound of the cost with these pairs."""
        return self._unpaired(lefts, rights, pairs) + sum(self._bound(lefts[i], rights[j]) for i, j in pairs)

    def _unpaired(self, lefts: Sequence[Node], rights: Sequence[Node], pairs: _Pairs) -> int:
        """The cost of the arguments that are added or removed."""
        paired = sum(self._size(lefts[i]) + self._size(rights[j]) for i, j in pairs)
        return UNIT * (sum(map(self._size, (*lefts, *rights))) - paired)

    def _shape(self, node: Node) -> int:
        return self.profiles[node.identity].shape

    def _size(self, node: Node) -> int:
        return self.profiles[node.identity].size

    def _bound(self, left: Node, right: Node) -> int:
        """A lower bound of the cost from one node to the other."""
        return 0 if left.identity == right.identity else UNIT * max(self._moved(left, right), 1)

    def _bound_of_arguments(self, left: Node, right: Node, label: int) -> int:
        """As :meth:`_bound`, from all arguments together and the cost ``label`` of the nodes themselves."""
        return UNIT * max(self._moved(left, right) - (label > 0), 0)

    def _moved(self, left: Node, right: Node) -> int:
        """The label occurrences that one side has and the other lacks, the maximum of both sides; at most one per change."""
        here, there = self.profiles[left.identity], self.profiles[right.identity]
        more = sum([x - y for x, y in zip(here.bins, there.bins, strict=True) if x > y])
        return max(more, more - (here.size - there.size))


def profiles(roots: Iterable[Node]) -> dict[str, Profile]:
    """The profile of every node under ``roots``, by identity. Shapes can be compared within one call only."""
    found: dict[str, Profile] = {}
    shapes: dict[object, int] = {}
    for node in topological(roots):
        args = [found[arg.identity] for arg in node.args]
        bins = [sum(column) for column in zip(*(arg.bins for arg in args), strict=True)] if args else [0] * _BINS
        bins[zlib.crc32(label_of(node).encode()) % _BINS] += 1
        below = [arg.shape for arg in args]
        if isinstance(node, Operation):
            shape = (node.op, *(sorted(below) if is_commutative(node.op) else below))
        else:
            shape = (type(node).__name__,)
        found[node.identity] = Profile(
            1 + sum(arg.size for arg in args), tuple(bins), shapes.setdefault(shape, len(shapes))
        )
    return found


def label_of(node: Node) -> str:
    """The label of a node: all but its arguments and type."""
    return repr((node.op, node.version, node.params)) if isinstance(node, Operation) else node.identity


def label_cost(left: Operation, right: Operation) -> int:
    """The cost of turning one operation into another over the same arguments."""
    if left.op != right.op:
        return 2 * UNIT
    changes = (left.version != right.version) + len(changed_params(left, right))
    return UNIT + min(changes, UNIT) - 1 if changes else 0


def changed_params(left: Operation, right: Operation) -> list[str]:
    """The names of parameters that differ or exist on one side only, sorted."""
    if left.params == right.params:
        return []
    before, after = dict(left.params), dict(right.params)
    return [name for name in sorted({*before, *after}) if not _same(before, after, name)]


def _same(before: Mapping[str, object], after: Mapping[str, object], name: str) -> bool:
    return name in before and name in after and encode(before[name]) == encode(after[name])


def is_commutative(op: str) -> bool:
    """Whether an operator is commutative; an unregistered one is not."""
    return op in REGISTRY and Law.COMMUTATIVE in REGISTRY[op].laws


def is_variadic(op: str) -> bool:
    """Whether an operator takes any number of arguments."""
    return op in REGISTRY and bool(REGISTRY[op].args) and REGISTRY[op].args[-1].variadic


def _equal_ones(
    lefts: Sequence[Node], rights: Sequence[Node]
) -> tuple[list[tuple[int, int]], Sequence[int], Sequence[int]]:
    waiting: dict[str, list[int]] = {}
    for j in reversed(range(len(rights))):
        waiting.setdefault(rights[j].identity, []).append(j)
    same = [(i, waiting[left.identity].pop()) for i, left in enumerate(lefts) if waiting.get(left.identity)]
    lefts_left = sorted(set(range(len(lefts))) - {i for i, _ in same})
    rights_left = sorted(set(range(len(rights))) - {j for _, j in same})
    return same, lefts_left, rights_left
