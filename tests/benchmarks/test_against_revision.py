from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.against_revision import (
    REPOSITORY,
    SCRIPTS,
    checkout,
    figures_of,
    main,
    measure_starts,
    run_alternately,
    table,
)

PRINTED = {
    "many_models": """x86_64, 2 cores, Python 3.11.7

sample log: 22 models of 98 inputs, 203 components in all; 2,008 rows in 24 fragments; 4,872 memos
  CPU                                                   all models    a model a model, row
  each for itself                                          16.23 s    0.738 s    367407 ns
      of it reading raw columns, digests checked            3.97 s    0.180 s     89772 ns
  for itself / shared 0.77, target at least 7.5; sharing beyond one computation 103.9% of all models' own""",
    "catalog_scale": """sqlite: 600 components over 4 fragments; 48 hours
submit 50 inputs, 5 % new                    p50     54.3 ms  p99     65.8 ms  CPU     15.8 ms   27 statements  p99 < 250 ms: ok
its memory                                   1 MB held, 1 MB at most; the manifest alone 0 MB  at most 3 times: ok
postgresql: 600 components over 4 fragments; 48 hours
submit 50 inputs, 5 % new                    p50     60.0 ms  p99     70.0 ms  CPU     20.0 ms   27 statements  p99 < 250 ms: ok""",
    "direct_runner_overhead": """1,924 rows in 4 fragments, 68 memos, 2 threads
what                                                    wall s    share     CPU s
a worker, from the first lease until idle                 0.62               0.20
    kernels, by its children                              0.04     5.9%
the same calls by bare threads, before                    1.91   305.5%      0.47
outside kernels and files 81.3%, target under 15%: missed; bare threads take -64.8% less wall time""",
}
FOUND = {
    "many_models": {("each for itself", "CPU s"): 16.23, ("of it reading raw columns, digests checked", "CPU s"): 3.97},
    "catalog_scale": {
        ("submit 50 inputs, 5 % new", "p50 ms"): 54.3,
        ("submit 50 inputs, 5 % new", "p99 ms"): 65.8,
        ("submit 50 inputs, 5 % new", "CPU ms"): 15.8,
        ("submit 50 inputs, 5 % new (2)", "p50 ms"): 60.0,
        ("submit 50 inputs, 5 % new (2)", "p99 ms"): 70.0,
        ("submit 50 inputs, 5 % new (2)", "CPU ms"): 20.0,
    },
    "direct_runner_overhead": {
        ("a worker, from the first lease until idle", "wall s"): 0.62,
        ("a worker, from the first lease until idle", "CPU s"): 0.20,
        ("kernels, by its children", "wall s"): 0.04,
        ("the same calls by bare threads, before", "wall s"): 1.91,
        ("the same calls by bare threads, before", "CPU s"): 0.47,
    },
}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_figures_of_a_script(name: str) -> None:
    assert figures_of(SCRIPTS[name], PRINTED[name]) == FOUND[name]


def test_sides_alternate() -> None:
    seen: list[str] = []

    def run(tree: Path) -> dict[tuple[str, str], float]:
        seen.append(tree.name)
        return {("turn", "s"): float(len(seen))}

    theirs, ours = run_alternately(run, (Path("a"), Path("b")), 2)
    assert seen == ["a", "b", "a", "b"]
    assert [one["turn", "s"] for one in (*theirs, *ours)] == [1.0, 3.0, 2.0, 4.0]


def test_ratios_are_taken_within_a_round() -> None:
    theirs = [{("x", "s"): 1.0, ("gone", "s"): 1.0}, {("x", "s"): 10.0}, {("x", "s"): 2.0}]
    ours = [{("x", "s"): 2.0}, {("x", "s"): 5.0, ("new", "s"): 7.0}, {("x", "s"): 3.0}]
    _, x, gone, new = table(theirs, ours, "abc").splitlines()
    assert x.split() == ["x", "s", "2.000", "3.000", "1.50"]
    assert gone.split() == ["gone", "s", "1.000", "-", "-"]
    assert new.split() == ["new", "s", "-", "7.000", "-"]


needs_git = pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="not a git checkout")


@pytest.mark.slow
@needs_git
def test_imports_of_a_revision_and_of_the_working_tree() -> None:
    with checkout("HEAD") as tree:
        theirs, ours = measure_starts((tree, REPOSITORY), starts=1)
    assert not tree.exists()
    assert len(theirs) == len(ours) == 1
    assert theirs[0].keys() == ours[0].keys()
    assert {what for what, _ in ours[0]} == {
        "python alone",
        "import headrace",
        "headrace --help",
        "import read_fragment",
    }
    assert all(value > 0 for value in (*theirs[0].values(), *ours[0].values()))


@needs_git
def test_an_unknown_revision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["against_revision", "no-such-revision", "--quick"])
    with pytest.raises(SystemExit, match="no-such-revision"):
        main()


@needs_git
@pytest.mark.slow
def test_a_script_on_both_sides() -> None:
    command = [sys.executable, "-m", "benchmarks.against_revision", "HEAD", "--only", "catalog_scale", "--quick"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=600)
    (line,) = [
        line for line in done.stdout.splitlines() if line.startswith("submit 50 inputs, all known") and "p50 ms" in line
    ]
    theirs, ours, ratio = map(float, line.split()[-3:])
    assert min(theirs, ours, ratio) > 0
