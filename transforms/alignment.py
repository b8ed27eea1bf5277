"""How one component is turned into another at least cost: the search behind :mod:`transforms.difference`.

A pair of nodes is settled by the cheapest of: both are the same; two leaves of a kind, one in place of the other; two
operations, argument by argument; an operation put around the other side, or taken away; one in place of the other. Each
pair is settled once, whatever the number of ways that lead to it. A lower bound, from how often each label occurs under
either node, says what need not be looked at, and ``WORK_MAX`` how much may be: beyond it a pair that was not settled counts
as replaced. So the time is bounded for every pair of graphs, and the outcome depends on nothing but the graphs.

Costs are those of the graphs as trees, since a node is paid for wherever it is read; they are whole numbers of any size.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from transforms.encoding import encode
from transforms.graph import Node, Operation, topological
from transforms.operators import REGISTRY
from transforms.operators.declaration import Law

#: The cost of one change; less is left for telling several changes of one operation from one.
UNIT = 8
#: Work for one alignment, in units of about a microsecond: the pairs that are looked at, their bounds, and the matchings.
WORK_MAX = 1_000_000
_PAIR_WORK, _BOUND_WORK, _ARGUMENT_WORK = 40, 3, 10
#: Arguments whose order means nothing are paired exactly up to so many; beyond it, by the lower bound.
EXACT_SET = 6
#: Arguments in order are aligned exactly up to so many; beyond it, equal ones first.
EXACT_SEQUENCE = 12
_BINS = 32
_MATRIX_MAX = 10_000

#: Positions of an argument on either side; None on a side that has none.
Matched = tuple[tuple[int | None, int | None], ...]
_Search = Generator[tuple[Node, Node], int, int]
_Costs = dict[tuple[int, int], int]
_Solver = Callable[[_Costs, Sequence[int], Sequence[int]], Matched]


class Way(StrEnum):
    """How a pair of different nodes is settled."""

    RELABEL = "relabel"  # two leaves of one kind
    ALIGN = "align"  # two operations, argument by argument
    INSERT = "insert"  # the right operation stands around what the left one is
    DELETE = "delete"  # the left operation stands around what the right one is
    REPLACE = "replace"  # nothing better


@dataclass(frozen=True, slots=True)
class Step:
    """What is done about one pair. ``kept`` is the argument that an INSERT or DELETE goes on with."""

    cost: int
    way: Way
    kept: int = -1
    matched: Matched = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """What is under a node, taken as a tree: nodes, occurrences of labels by bin, and the shape but for parameters and leaves."""

    size: int
    bins: tuple[int, ...]
    shape: int


class Alignment:
    """The cheapest way found from ``left`` to ``right``; :meth:`step` tells it pair by pair. Deterministic.

    ``work`` is what was done of ``work_max``; what was begun before is finished, so it can be a little more.
    """

    def __init__(self, left: Node, right: Node, work_max: int = WORK_MAX) -> None:
        self.profiles = profiles((left, right))
        self.work = 0
        self._work_max = work_max
        self._steps: dict[tuple[str, str], Step] = {}
        if left != right:
            self._settle(left, right)

    def step(self, left: Node, right: Node) -> Step:
        """What is done about a pair of different nodes that the steps before it led to."""
        return self._steps[left.identity, right.identity]

    def _settle(self, left: Node, right: Node) -> None:
        """Run the searches on a stack of their own, so that depth is no limit."""
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
        """The ways worth trying, by their lower bounds; equally good ones in the order of their names."""
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
        if left.op == right.op and is_commutative(left.op):
            alike = self._shape(left) == self._shape(right)
            cost, matched = yield from self._as_sets(left.args, right.args, alike)
        else:
            cost, matched = yield from self._in_order(left, right)
        # Nothing differs but the type or the order of arguments: that is one change.
        return Step(label_cost(left, right) + cost or UNIT, way, matched=matched)

    def _in_order(self, left: Operation, right: Operation) -> Generator[tuple[Node, Node], int, tuple[int, Matched]]:
        """Arguments where order means something."""
        lefts, rights = left.args, right.args
        if len(lefts) == len(rights) and not (
            left.op == right.op and is_variadic(left.op) and self._shifted(left, right)
        ):
            return (yield from self._paired(lefts, rights, [(i, i) for i in range(len(lefts))]))
        if max(len(lefts), len(rights)) <= EXACT_SEQUENCE:
            everything = range(len(lefts)), range(len(rights))
            return (yield from self._lazily(lefts, rights, *everything, solver=_cheapest_sequence))
        self.work += _ARGUMENT_WORK * (len(lefts) + len(rights))
        here, there = ([arg.identity for arg in args] for args in (lefts, rights))
        pairs: list[tuple[int, int]] = []
        for _, i, i_end, j, j_end in SequenceMatcher(None, here, there, autojunk=False).get_opcodes():
            pairs += zip(range(i, i_end), range(j, j_end), strict=False)
        return (yield from self._paired(lefts, rights, pairs))

    def _shifted(self, left: Operation, right: Operation) -> bool:
        """Whether as many arguments may be others than those at the same places: not if shapes agree and no argument moved."""
        if self._shape(left) != self._shape(right):
            return True
        changed = [i for i, (a, b) in enumerate(zip(left.args, right.args, strict=True)) if a != b]
        return not {left.args[i] for i in changed}.isdisjoint({right.args[i] for i in changed})

    def _as_sets(
        self, lefts: Sequence[Node], rights: Sequence[Node], alike: bool
    ) -> Generator[tuple[Node, Node], int, tuple[int, Matched]]:
        """Arguments whose order means nothing: equal ones first, the rest as it is cheapest.

        Where both sides are ``alike``, of one shape, those of one shape are paired: in a large graph that leaves little to try.
        """
        same, lefts_left, rights_left = _equal_ones(lefts, rights)
        if max(len(lefts_left), len(rights_left)) <= EXACT_SET:
            solved = self._lazily(lefts, rights, lefts_left, rights_left, alike=alike, solver=_cheapest_set)
            cost, matched = yield from solved
            return cost, (*same, *matched)
        pairs = self._greedily(lefts, rights, lefts_left, rights_left)
        return (yield from self._paired(lefts, rights, sorted([*same, *pairs])))

    def _greedily(
        self, lefts: Sequence[Node], rights: Sequence[Node], rows: Sequence[int], columns: Sequence[int]
    ) -> list[tuple[int, int]]:
        if len(rows) * len(columns) > _MATRIX_MAX:
            return list(zip(rows, columns, strict=False))
        self.work += _BOUND_WORK * len(rows) * len(columns)
        bounds = sorted((self._bound(lefts[i], rights[j]), i, j) for i in rows for j in columns)
        taken: dict[int, int] = {}
        used: set[int] = set()
        for _, i, j in bounds:
            if i not in taken and j not in used:
                taken[i] = j
                used.add(j)
        return sorted(taken.items())

    def _paired(
        self, lefts: Sequence[Node], rights: Sequence[Node], pairs: Sequence[tuple[int, int]]
    ) -> Generator[tuple[Node, Node], int, tuple[int, Matched]]:
        """The given pairs; every other argument is added or removed."""
        cost = 0
        for i, j in pairs:
            cost += yield from self._cost(lefts[i], rights[j])
        removed = sorted(set(range(len(lefts))) - {i for i, _ in pairs})
        added = sorted(set(range(len(rights))) - {j for _, j in pairs})
        cost += UNIT * sum(self._size(lefts[i]) for i in removed) + UNIT * sum(self._size(rights[j]) for j in added)
        return cost, (*pairs, *((i, None) for i in removed), *((None, j) for j in added))

    def _lazily(
        self,
        lefts: Sequence[Node],
        rights: Sequence[Node],
        rows: Sequence[int],
        columns: Sequence[int],
        *,
        solver: _Solver,
        alike: bool = False,
    ) -> Generator[tuple[Node, Node], int, tuple[int, Matched]]:
        """The cheapest matching: solved over lower bounds, and again with the true costs of what it chose, until they agree."""
        costs = {
            (i, j): self._bound(lefts[row], rights[column])
            for i, row in enumerate(rows)
            for j, column in enumerate(columns)
        }
        self.work += _BOUND_WORK * len(costs)
        removed = [UNIT * self._size(lefts[row]) for row in rows]
        added = [UNIT * self._size(rights[column]) for column in columns]
        known: set[tuple[int, int]] = set()
        for i, j in costs if alike else ():
            if self._shape(lefts[rows[i]]) != self._shape(rights[columns[j]]):
                costs[i, j] = removed[i] + added[j] + 1  # dearer than one gone and one new
                known.add((i, j))
        while True:
            self.work += 1 + (len(rows) * len(columns) << (len(columns) if solver is _cheapest_set else 3)) // 8
            matched = solver(costs, removed, added)
            chosen = [(i, j) for i, j in matched if i is not None and j is not None and (i, j) not in known]
            for i, j in chosen:
                costs[i, j] = yield from self._cost(lefts[rows[i]], rights[columns[j]])
                known.add((i, j))
            if not chosen or self._exhausted:
                total = sum(costs[i, j] for i, j in matched if i is not None and j is not None)
                total += sum(removed[i] for i, j in matched if i is not None and j is None)
                total += sum(added[j] for i, j in matched if i is None and j is not None)
                places = ((None if i is None else rows[i], None if j is None else columns[j]) for i, j in matched)
                return total, tuple(places)

    def _shape(self, node: Node) -> int:
        return self.profiles[node.identity].shape

    def _size(self, node: Node) -> int:
        return self.profiles[node.identity].size

    def _bound(self, left: Node, right: Node) -> int:
        """No way from one to the other costs less."""
        return 0 if left.identity == right.identity else UNIT * max(self._moved(left, right), 1)

    def _bound_of_arguments(self, left: Node, right: Node, label: int) -> int:
        """The same of their arguments taken together, where the labels on top cost ``label``."""
        return UNIT * max(self._moved(left, right) - (label > 0), 0)

    def _moved(self, left: Node, right: Node) -> int:
        """Occurrences of labels on one side that the other lacks, the greater of both. One change makes one at most."""
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
    """What a node is, its arguments and its type aside."""
    return repr((node.op, node.version, node.params)) if isinstance(node, Operation) else node.identity


def label_cost(left: Operation, right: Operation) -> int:
    """What it costs to turn one operation into another over the same arguments."""
    if left.op != right.op:
        return 2 * UNIT
    changes = (left.version != right.version) + len(changed_params(left, right))
    return UNIT + min(changes, UNIT) - 1 if changes else 0


def changed_params(left: Operation, right: Operation) -> list[str]:
    """The names of parameters that differ, or that one side lacks, in order."""
    if left.params == right.params:
        return []
    before, after = dict(left.params), dict(right.params)
    return [name for name in sorted({*before, *after}) if not _same(before, after, name)]


def _same(before: Mapping[str, object], after: Mapping[str, object], name: str) -> bool:
    return name in before and name in after and encode(before[name]) == encode(after[name])


def is_commutative(op: str) -> bool:
    """Whether the order of an operator's arguments means nothing. An operator that is not registered counts as ordered."""
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


def _cheapest_set(costs: _Costs, removed: Sequence[int], added: Sequence[int]) -> Matched:
    """The best of every assignment, by the set of columns that are used."""
    states: dict[int, tuple[int, Matched]] = {0: (0, ())}
    for i, drop in enumerate(removed):
        following: dict[int, tuple[int, Matched]] = {}
        for used, (cost, matched) in states.items():
            choices = [(used | 1 << j, costs[i, j], j) for j in range(len(added)) if not used >> j & 1]
            for now, more, j in [*choices, (used, drop, None)]:
                if now not in following or cost + more < following[now][0]:
                    following[now] = (cost + more, (*matched, (i, j)))
        states = following
    finished = []
    for used, (cost, matched) in states.items():
        rest = [j for j in range(len(added)) if not used >> j & 1]
        finished.append((cost + sum(added[j] for j in rest), (*matched, *((None, j) for j in rest))))
    return min(finished, key=lambda each: each[0])[1]


def _cheapest_sequence(costs: _Costs, removed: Sequence[int], added: Sequence[int]) -> Matched:
    """The alignment of two sequences, by the usual table; a match wins over what costs the same."""
    table = [[0] * (len(added) + 1) for _ in range(len(removed) + 1)]
    for j in range(len(added)):
        table[0][j + 1] = table[0][j] + added[j]
    for i in range(len(removed)):
        table[i + 1][0] = table[i][0] + removed[i]
        for j in range(len(added)):
            table[i + 1][j + 1] = min(
                table[i][j] + costs[i, j], table[i][j + 1] + removed[i], table[i + 1][j] + added[j]
            )
    matched: list[tuple[int | None, int | None]] = []
    i, j = len(removed), len(added)
    while i or j:
        if i and j and table[i][j] == table[i - 1][j - 1] + costs[i - 1, j - 1]:
            i, j = i - 1, j - 1
            matched.append((i, j))
        elif i and table[i][j] == table[i - 1][j] + removed[i - 1]:
            i -= 1
            matched.append((i, None))
        else:
            j -= 1
            matched.append((None, j))
    return tuple(reversed(matched))
