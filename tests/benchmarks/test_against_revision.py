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
    "embedding_kernels": """one-hot: 26 tables, 26 inputs, 4096 events, 2 threads
  headrace    lookup     4.03 ms   lookup and update    12.55 ms   headrace by it 1.00x and 1.00x
  TensorFlow  lookup    29.21 ms   lookup and update   370.21 ms   headrace by it 0.14x and 0.03x
  headrace lookup: 37 MB at 9.2 GB/s, 40 % of a copy's""",
    "dlrm_throughput": """x86_64, 2 cores, Python 3.11.7; 38,202 events, 15,682 tested, batches of 1024, 2 threads a side
  round 1 headrace     23,230 samples/s,     75,844 after 20,480 events; AUC of later events 0.7971""",
    "partitioned_cores": """lookup and update of 4,096 events with 973,127 ids, by the time of the cpu engine:
  cpu, 2 threads                         55.3 ms   1.00x
  1 cores                               151.2 ms   2.73x    2.93 ids a row asked for,   2 % padding""",
    "hashed_rows": """read: hashed tables: 109 ns, 4.76x
update: hashed tables, a tenth of new ids: 1,542 ns, 1.00x""",
    "pruning_speed": "10 tables of 400,000 rows, 200,000 kept, of 16 columns, bags of 10, 0.0% of the ids without a place: "
    "lookup 4.26 ms, 1.39x the direct one; update 10.81 ms, 1.52x; step 1.48x, with a dense part of 20 ms 1.161x",
    "ps_fetch_speed": """ table MB  columns  rows of a message
        2       16     1,000     0.22   0.49    0.44     0.20   0.26    0.77
    1,024       64   100,000     1.15   4.72    0.24     0.83   1.65    0.50
a core of the server: 0.14 to 0.66 of Flight's bytes (target at least 0.7: missed)""",
    "ps_wire": """    network      ids, values  lookups/s updates/s  steps    CPU ms    CPU
   loopback   plain, float32       58.2      46.9    1.00x      56.1   1.00x""",
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
    "embedding_kernels": {("headrace", "lookup ms"): 4.03, ("headrace", "both ms"): 12.55},
    "dlrm_throughput": {("headrace", "rows/s"): 23230, ("headrace", "later/s"): 75844},
    "partitioned_cores": {("cpu, 2 threads", "ms"): 55.3, ("1 cores", "ms"): 151.2},
    "hashed_rows": {
        ("read: hashed tables", "ns"): 109,
        ("update: hashed tables, a tenth of new ids", "ns"): 1542,
    },
    "pruning_speed": {
        ("16 columns, bags of 10", "lookup ms"): 4.26,
        ("16 columns, bags of 10", "by cpu"): 1.39,
        ("16 columns, bags of 10", "upd ms"): 10.81,
        ("16 columns, bags of 10", "upd by"): 1.52,
    },
    "ps_fetch_speed": {
        ("2       16     1,000", "GB/s CPU"): 0.22,
        ("2       16     1,000", "GB/s"): 0.20,
        ("1,024       64   100,000", "GB/s CPU"): 1.15,
        ("1,024       64   100,000", "GB/s"): 0.83,
    },
    "ps_wire": {
        ("loopback   plain, float32", "lookups"): 58.2,
        ("loopback   plain, float32", "updates"): 46.9,
        ("loopback   plain, float32", "CPU ms"): 56.1,
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
