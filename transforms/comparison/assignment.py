"""The assignment problem over integers of any size, for :mod:`transforms.comparison.alignment`."""

from __future__ import annotations

from collections.abc import Sequence


def least_assignment(costs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The pairs of rows and columns of the least total cost; as many as there are rows or columns, whichever are fewer.

    Kuhn's algorithm with potentials, in fewer² x more steps. Exact: costs of exponentially large trees do not fit floats.
    Deterministic; the pairs are sorted.
    """
    if not costs or not costs[0]:
        return []
    if len(costs) > len(costs[0]):
        return sorted((row, column) for column, row in least_assignment(list(zip(*costs, strict=True))))
    row_prices, column_prices = [0] * len(costs), [0] * len(costs[0])
    row_of: list[int | None] = [None] * len(costs[0])
    for row in range(len(costs)):
        _add_row(costs, row, row_prices, column_prices, row_of)
    return sorted((row, column) for column, row in enumerate(row_of) if row is not None)


def _add_row(
    costs: Sequence[Sequence[int]],
    added: int,
    row_prices: list[int],
    column_prices: list[int],
    row_of: list[int | None],
) -> None:
    """Assign one more row along the shortest path to a free column, and keep the prices below the costs."""
    slack: dict[int, int] = {}
    came_from: dict[int, int | None] = {}
    reached: list[int] = []
    waiting = set(range(len(column_prices)))
    row, at = added, None
    while True:
        for column in waiting:
            reduced = costs[row][column] - row_prices[row] - column_prices[column]
            if column not in slack or reduced < slack[column]:
                slack[column], came_from[column] = reduced, at
        nearest = min(waiting, key=lambda column: (slack[column], column))
        step = slack[nearest]
        row_prices[added] += step
        for column in reached:
            row_prices[_assigned(row_of, column)] += step
            column_prices[column] -= step
        for column in waiting:
            slack[column] -= step
        waiting.remove(nearest)
        reached.append(nearest)
        at = nearest
        if row_of[nearest] is None:
            break
        row = _assigned(row_of, nearest)
    while at is not None:
        before = came_from[at]
        row_of[at] = added if before is None else row_of[before]
        at = before


def _assigned(row_of: Sequence[int | None], column: int) -> int:
    row = row_of[column]
    assert row is not None
    return row
