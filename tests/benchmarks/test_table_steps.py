from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.table_steps import CASES, REPOSITORY, Side, for_sizes, take_turns


class Counted:
    def __init__(self, name: str, seen: list[str]) -> None:
        self._name, self._seen = name, seen

    def step(self, number: int) -> tuple[float, float]:
        self._seen.append(f"{self._name}{number}")
        return float(number), float(len(self._seen))


def test_sides_take_turns_and_the_first_steps_do_not_count() -> None:
    seen: list[str] = []
    theirs, ours = take_turns(Counted("a", seen), Counted("b", seen), 2)  # type: ignore[arg-type]
    assert seen[-4:] == ["b8", "a8", "a9", "b9"]
    assert [one[0] for one in theirs] == [one[0] for one in ours] == [8.0, 9.0]


def test_pruned_cases_have_a_direct_one() -> None:
    assert for_sizes(CASES) == ["pruned-16-1", "pruned-16-10", "pruned-64-1", "pruned-64-10"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["cores-1", "pruned-16-1", "direct-16-1"])
def test_a_side_makes_steps(case: str) -> None:
    with Side(Path(REPOSITORY), case) as side:
        assert min(side.step(0)) > 0
