"""``python -m tests.mutants``: mutants in changed lines, and the tests that are nearest to them.

Equal seeds, trees and revisions give the same mutants. The status is 1 if more of them survive than the target allows.
"""

from __future__ import annotations

import argparse
import difflib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.mutants.candidates import Mutant, mutants_of
from tests.mutants.changed_lines import TOPS, base_revision, changed_lines, compiled_kernels, tracked_files
from tests.mutants.nearest_tests import NearestTests
from tests.mutants.trials import Copy, Outcome, Trial, run_trials

#: The largest share of mutants that may survive.
TARGET_SHARE = 0.05
_QUICK = "not slow and not soak and not flink and not spark and not torch and not tpu_aot and not wheel"
_LEFT = (Outcome.SURVIVED, Outcome.UNTESTED)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the tree, under git")
    parser.add_argument("--since", default="", help="the revision whose lines are left out; default: the last release, or 50 commits before")  # fmt: skip
    parser.add_argument("--count", type=int, default=50, help="the number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time, each in a copy of the tree")
    parser.add_argument(
        "--marks", default=_QUICK, help="the tests that run, as pytest's -m; default: those of make test"
    )
    parser.add_argument("--only", default="", help="only files whose path contains this text")
    return parser.parse_args(arguments)


def drawn_mutants(root: Path, since: str, count: int, seed: int, only: str = "") -> list[Mutant]:
    """``count`` mutants of the lines that changed since a revision, sorted by file and place; equal seeds give equal ones."""
    tops = [top for top in TOPS if (root / top).is_dir()]
    candidates = [
        mutant
        for file, lines in changed_lines(root, since, tops).items()
        if only in file
        for mutant in mutants_of(file, (root / file).read_bytes(), lines)
    ]
    return sorted(random.Random(seed).sample(candidates, min(count, len(candidates))))


def difference(root: Path, mutant: Mutant) -> str:
    """The mutant as a unified diff."""
    source = (root / mutant.file).read_bytes()
    before, after = (text.decode().splitlines(keepends=True) for text in (source, mutant.applied(source)))
    return "".join(difflib.unified_diff(before, after, f"a/{mutant.file}", f"b/{mutant.file}", n=2))


def summary(trials: Sequence[Trial], seed: int, secs: float) -> str:
    """The last line: how many were killed, and the share that was not."""
    judged = [one for one in trials if one.outcome is not Outcome.UNJUDGED]
    left = sum(one.outcome in _LEFT for one in judged)
    share = left / len(judged) if judged else 0.0
    unjudged = f", {len(trials) - len(judged)} not judged" if len(judged) < len(trials) else ""
    return (f"{len(judged)} mutants: {len(judged) - left} killed, {left} survived{unjudged}; "
            f"{share:.1%} survived (target: at most {TARGET_SHARE:.0%}); seed {seed}, {secs:,.0f} s")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw mutants, run their tests and print what survives."""
    options = parse_arguments(arguments)
    root, began = options.root.resolve(), time.monotonic()
    since = options.since or base_revision(root)
    mutants = drawn_mutants(root, since, options.count, options.seed, options.only)
    if not mutants:
        print(f"no line changed since {since} has a mutant")
        return 0
    print(f"{len(mutants)} mutants in lines changed since {since}, seed {options.seed}", flush=True)
    tests_of = cache(NearestTests(root).of)
    writing = threading.Lock()

    def show(trial: Trial) -> None:
        with writing:
            print(f"{trial.outcome:21} {trial.mutant.file}:{trial.mutant.line} {trial.mutant.kind} ({trial.secs:.0f} s)", flush=True)  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="headrace-mutants-") as folder:
        files = [*tracked_files(root), *compiled_kernels(root)]
        names = range(max(1, min(options.jobs, len(mutants))))
        plugins = ("-n", "0", "-m", options.marks, "--hypothesis-seed=0")
        copies = [Copy(root, Path(folder) / str(name), files, plugins) for name in names]
        trials = run_trials(copies, mutants, tests_of, show)
    for trial in trials:
        if trial.outcome is not Outcome.KILLED:
            print(f"\n{trial.outcome}: {trial.mutant.kind}; tests: {' '.join(trial.tests) or '(none)'}\n{difference(root, trial.mutant)}")  # fmt: skip
    print(summary(trials, options.seed, time.monotonic() - began))
    judged = [one for one in trials if one.outcome is not Outcome.UNJUDGED]
    return int(sum(one.outcome in _LEFT for one in judged) > TARGET_SHARE * len(judged))


if __name__ == "__main__":
    sys.exit(main())
