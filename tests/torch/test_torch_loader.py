"""Loaders with real workers of PyTorch and torchdata, killed and started again; and with JAX."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path

import pytest

import headrace as hr
from tests.torch.install import PYTHON, ROOT

pytestmark = pytest.mark.torch


def test_tensors_hold_what_numpy_batches_hold(still_home):
    assert still_home.run("checks", "tensors", still_home.home) == {"batches": 8, "tensorflow": False}


def test_any_number_of_workers_gives_the_same_batches(still_home):
    batches, events = still_home.run("checks", "workers", still_home.home)
    assert events == sum(still_home.wanted().values())
    assert batches >= 8


def test_states_of_loaders_go_on_with_any_number_of_workers(still_home):
    assert len(still_home.run("checks", "states", still_home.home)) == 6


def test_a_state_without_its_last_steps_is_refused(still_home):
    assert "since its snapshot" in still_home.run("checks", "sparse_state", still_home.home)


def test_the_examples_of_the_names_are_true(still_home):
    assert still_home.run("checks", "examples", still_home.home) == 6


def test_jax_batches_have_fixed_shapes(still_home):
    found = still_home.run("checks", "jax", still_home.home)
    assert found["rows"] == sum(still_home.wanted().values())
    assert found["compiled"] == 1
    assert [error.split(" must ")[0] for error in found["errors"]] == [
        "a batch", "most_ids", "most_ids", "an input with any number of ids",
    ]  # fmt: skip


class Trainer:
    """A process of ``tests.torch.trainer``."""

    def __init__(self, home, folder: Path, rank: int, world: int, workers: int, steps: int, options: dict, *, own=None, every=None) -> None:  # fmt: skip
        self.state, self.log = folder / f"state-{rank}", folder / f"log-{rank}"
        if own is not None:
            Path(f"{self.state}.loader").write_bytes(own)
        if every is not None:
            Path(f"{self.state}.dataset").write_bytes(every)
        self.process: subprocess.Popen[str] = home.start("trainer", home.home, rank, world, workers, steps, self.state, self.log, json.dumps(options))  # fmt: skip

    def kill(self) -> None:
        """Kill it when it stands still, or wait for its end."""
        line = self.process.stdout.readline().strip()
        assert line in ("ready", "end"), self.process.stderr.read()
        self.process.kill()
        self.process.wait()

    def rows(self, length: int) -> list[tuple]:
        """The events that were trained when LOG had this length."""
        lines = self.log.read_bytes()[:length].decode().splitlines()
        return [tuple(row) for line in lines for row in json.loads(line)]


#: Reads what trainers have saved: prints the length of each log, and writes the states, of one into a file and of all as a list.
READ = """
import sys, torch
saved = [torch.load(path) for path in sys.argv[2:]]
torch.save([one["state"] for one in saved], sys.argv[1])
for path, one in zip(sys.argv[2:], saved):
    torch.save(one["state"], f"{path}.own")
print(*[one["lines"] for one in saved])
"""


def saved(folder: Path, trainers: list[Trainer]) -> tuple[list[int], bytes, list[bytes]]:
    """The lengths of the logs, the states of all loaders, and those of each."""
    paths = [str(one.state) for one in trainers]
    done = subprocess.run([PYTHON, "-c", READ, folder / "every", *paths], capture_output=True, text=True, check=True, cwd=ROOT)  # fmt: skip
    own = [Path(f"{path}.own").read_bytes() for path in paths]
    return [int(one) for one in done.stdout.split()], (folder / "every").read_bytes(), own


def test_killed_trainers_hand_out_each_event_once(torch_home, tmp_path):
    """Ranks 1, 2, 2 again by their own states, 3 and 1, with other workers; late rows come between; a rank is ahead in one of them."""
    trained: Counter = Counter()
    every: bytes | None = None
    own: list[bytes] = []
    lives = [(1, 2, [3]), (2, 2, [2, 2]), (2, 2, [1, 1]), (3, 1, [2, 1, 2]), (1, 0, [0])]
    for number, (world, workers, steps) in enumerate(lives):
        folder = tmp_path / f"life-{number}"
        folder.mkdir()
        options = {"batch_rows": 12, "shuffle_events": 48, "lanes": world, "jagged": False}
        continues = number == 2
        running = [
            Trainer(torch_home, folder, rank, world, workers, steps[rank], options, own=own[rank] if continues else None,
                    every=None if continues else every)
            for rank in range(world)
        ]  # fmt: skip
        for one in running:
            one.kill()
        lengths, every, own = saved(folder, running)
        for one, length in zip(running, lengths, strict=True):
            trained.update(one.rows(length))
        if number == 0:
            torch_home.add_late_rows()
    assert trained == torch_home.wanted()
    assert sum(trained.values()) > 289, "late rows came"


def test_the_example_trains_and_goes_on_where_it_was_killed(still_home, tmp_path):
    """It is killed within its steps; the rest, and no event twice, is trained from the saved state."""
    state = tmp_path / "state.pt"
    options = ("--home", still_home.home, "--model", "second", "--train-end", "2026-03-02T03:00", "--batch-rows", 16)
    words = ("--state", state, "--save-every", 1)
    trained = hr.read("second", end="2026-03-02T03:00", home=still_home.home).num_rows
    running = still_home.start("torch_dlrm", *options, *words, package="examples")
    while not state.exists() and running.poll() is None:
        time.sleep(0.01)
    running.kill()
    running.wait()
    again, _ = still_home.start("torch_dlrm", *options, *words, package="examples").communicate()
    figures = re.search(r"([\d,]+) events trained, ([\d,]+) tested: AUC ([\d.]+)", again)
    assert figures is not None, again
    rest, tested, auc = int(figures[1].replace(",", "")), int(figures[2]), float(figures[3])
    batches = hr.batches("second", end="2026-03-02T03:00", home=still_home.home, batch_rows=16, shuffle_events=256)
    assert trained - rest in [*accumulate(batch.rows for batch in batches)]
    assert tested == hr.read("second", "2026-03-02T03:00", home=still_home.home).num_rows
    assert 0.0 <= auc <= 1.0  # of some dozens of events
