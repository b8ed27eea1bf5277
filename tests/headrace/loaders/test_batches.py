"""``hr.batches`` on a warehouse: the events of a range, each once, over processes that are killed and data that comes late."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.demo.sample_log import write_sample_log
from tests.conftest import ROOT
from tests.headrace.conftest import SMALL
from transforms.errors import HeadraceError, InputError, NotFound

pytestmark = pytest.mark.usefixtures("submitted")


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


def rows_of(batch) -> list[tuple[int, float, float]]:
    return [*zip(batch.ids["user"].values.tolist(), batch.dense[:, 0].tolist(), batch.labels.tolist(), strict=True)]


def wanted(home: str) -> Counter:
    """The user, price and label of each event."""
    table = hr.read("first", home=home)
    columns = table["user"].to_pylist(), table["price"].to_pylist(), map(float, table["label"].to_pylist())
    return Counter(zip(*columns, strict=True))


def test_a_batch_has_the_inputs_of_hr_read(home):
    loader = hr.batches(
        "first", "2026-03-02T01:00", "2026-03-02T03:00", home=home, batch_rows=50, events_per_epoch=1 << 40
    )
    found = list(loader)
    table = hr.read("first", "2026-03-02T01:00", "2026-03-02T03:00", home=home)
    assert len(found) == loader.steps == -(-table.num_rows // 50)
    assert [batch.rows for batch in found[:-1]] == [50] * (len(found) - 1)
    assert loader.dense_columns == {"price": slice(0, 1)}
    for name in ("overlap", "user"):
        lists = []
        for batch in found:
            ids = batch.ids[name]
            assert ids.weights is None
            assert ids.offsets[0] == 0
            lists += [ids.values[a:b].tolist() for a, b in zip(ids.offsets[:-1], ids.offsets[1:], strict=True)]
        stored = table[name].to_pylist()
        assert lists == [one if isinstance(one, list) else [one] for one in stored]
    assert np.concatenate([batch.dense[:, 0] for batch in found]).tolist() == table["price"].to_pylist()
    assert np.concatenate([batch.labels for batch in found]).tolist() == list(map(float, table["label"].to_pylist()))
    assert all((batch.weights == 1).all() for batch in found)


SEVERAL = """
import headrace as hr

both = hr.Model("both", client="search", table="log", label={"click": "clicked", "top": hr.int64("position") < 3})
both.input("user", hr.int64("user_id").hash_buckets(500))
"""


def test_several_labels_are_columns(cli, home, tmp_path):
    (tmp_path / "several.py").write_text(SEVERAL, encoding="utf-8")
    cli("model", "submit", tmp_path / "several.py")
    loader = hr.batches("both", home=home, batch_rows=64, events_per_epoch=1 << 40, pad=True)
    found = list(loader)
    assert loader.labels == ("click", "top")
    assert {batch.labels.shape for batch in found} == {(64, 2)}
    table = hr.read("both", home=home, columns=["clicked", "position"])
    labels = np.concatenate([batch.labels[: batch.rows] for batch in found])
    assert labels[:, 0].tolist() == list(map(float, table["clicked"].to_pylist()))
    assert labels[:, 1].tolist() == [float(one < 3) for one in table["position"].to_pylist()]
    *_, empty = hr.batches("both", home=home, batch_rows=200, rank=2, world=3, equal_steps=True)
    assert (empty.rows, empty.labels.shape) == (0, (0, 2))
    loader.load_state_dict(loader.state_dict())
    assert list(loader) == [], "all was handed out"
    assert len(list(loader)) == len(found)


def test_a_padded_batch_has_events_without_weight(home):
    *_, last = hr.batches("first", home=home, batch_rows=64, events_per_epoch=1 << 40, pad=True)
    assert 0 < last.rows < 64
    assert last.dense.shape == (64, 1)
    assert last.weights.tolist() == [1.0] * last.rows + [0.0] * (64 - last.rows)
    assert last.ids["user"].offsets[-1] == last.ids["user"].offsets[last.rows]


@pytest.mark.medium
def test_memos_are_pinned_while_they_are_read_and_give_the_same(cli, home):
    before = [rows_of(one) for one in hr.batches("first", home=home)]
    cli("work", "--until-idle")
    loader = iter(hr.batches("first", home=home))
    after = [rows_of(next(loader))]
    assert len(cli("pins", "--json").json["pins"]) == 1
    after += map(rows_of, loader)
    assert cli("pins", "--json").json["pins"] == []
    assert after == before


@pytest.mark.parametrize("first_drop", ["loader", "iteration"])
def test_an_iteration_that_is_dropped_half_read_releases_its_pin_at_once(cli, home, first_drop):
    pins = lambda: len(cli("pins", "--json").json["pins"])  # noqa: E731
    gc.collect()
    gc.disable()
    try:
        objects = {"loader": hr.batches("first", home=home, batch_rows=50)}
        objects["iteration"] = iter(objects["loader"])
        next(objects["iteration"])
        assert pins() == 1
        del objects[first_drop]
        assert pins() == (first_drop == "loader"), "only the iteration reads"
        if first_drop == "iteration":
            assert objects["loader"].state_dict()["steps"] == 1
        objects.clear()
        assert pins() == 0
    finally:
        gc.enable()


def test_each_iteration_begins_at_the_beginning_unless_a_state_was_loaded(home):
    loader = hr.batches("first", home=home, batch_rows=64)
    whole = [rows_of(one) for one in loader]
    assert [rows_of(one) for one in loader] == whole
    iteration = iter(loader)
    begun = [rows_of(next(iteration)) for _ in range(2)]
    state = json.loads(json.dumps(loader.state_dict()))
    iteration.close()
    other = hr.batches("first", home=home, batch_rows=64)
    other.load_state_dict(state)
    assert other.state_dict()["first"] == 2
    assert other.steps == len(whole) - 2
    assert begun + [rows_of(one) for one in other] == whole
    assert [rows_of(one) for one in other] == whole
    other.load_state_dict(state)
    other.rewind()
    assert [rows_of(one) for one in other] == whole


def test_a_state_of_another_model_or_share_is_refused(home):
    state = hr.batches("first", home=home).state_dict()
    with pytest.raises(InputError, match="with its model"):
        hr.batches("second", home=home).load_state_dict(state)
    states = [hr.batches("first", home=home, rank=rank, world=3).state_dict() for rank in range(3)]
    loader = hr.batches("first", home=home, rank=1, world=3)
    with pytest.raises(InputError, match="all ranks and workers"):
        loader.load_state_dict(states[:2])
    loader.load_state_dict(states[0])
    with pytest.raises(InputError, match="same share"):
        iter(loader)
    loader.load_state_dict(states)
    assert list(loader)


def test_unknown_models_and_empty_ranges_are_refused(home):
    with pytest.raises(NotFound):
        hr.batches("other", home=home)
    with pytest.raises(InputError, match="partitions"):
        hr.batches("first", "2031-01-01", home=home)
    with pytest.raises(InputError, match="rank must be"):
        hr.batches("first", home=home, rank=2, world=2)


def test_loading_needs_neither_tensorflow_nor_beam(home):
    program = f"""
import sys
import headrace as hr
loader = hr.batches("first", home={home!r})
assert sum(batch.rows for batch in loader) > 200
loader.load_state_dict(loader.state_dict())
print(*[name for name in ("tensorflow", "keras", "apache_beam", "torch", "jax") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_a_missing_framework_is_one_clear_error(home, package):
    program = f"""
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "jax"):
            raise ModuleNotFoundError(name, name=name)
import importlib.util
importlib.util.find_spec = lambda name: None
import headrace as hr
try:
    hr.{package}("first", home={home!r}{", most_ids=1" if package == "jax" else ""})
except hr.HeadraceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"{package} must be installed" in done.stdout
    assert f"pip install headrace[{package}]" in done.stdout


class Life:
    """One process of a trainer that is killed."""

    def __init__(self, folder: Path, home: str, rank: int, world: int, steps: int, options: dict, before: list) -> None:
        self.state, self.log = folder / f"state-{rank}", folder / f"log-{rank}"
        if before:
            Path(f"{self.state}.before").write_text(json.dumps(before))
        program = Path(__file__).with_name("lives.py")
        words = [home, rank, world, steps, self.state, self.log, json.dumps(options)]
        self.process = subprocess.Popen([sys.executable, program, *map(str, words)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                                        stdout=subprocess.PIPE, text=True)  # fmt: skip

    def kill(self) -> None:
        """Kill the process when it stands still, or has ended."""
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.process.kill()
        self.process.wait()

    def saved(self) -> tuple[dict, list]:
        """The state that the trainer would go on from, and the events that it had trained then."""
        document = json.loads(self.state.read_text())
        lines = self.log.read_bytes()[: document["lines"]].decode().splitlines()
        return document["state"], [tuple(row) for line in lines for row in json.loads(line)]


@pytest.mark.slow
def test_killed_trainers_of_other_numbers_train_each_event_once(cli, home, tmp_path):
    """World 1, 2, 3, 1 with kill -9 between; late rows arrive after the first life; ranks stop at different steps in one of them."""
    trained: Counter = Counter()
    states: list = []
    lives = [(1, [3]), (2, [2, 2]), (3, [1, 3, 2]), (1, [0])]
    for number, (world, steps) in enumerate(lives):
        folder = tmp_path / f"life-{number}"
        folder.mkdir()
        options = {"batch_rows": 16, "shuffle_events": 64 if number < 2 else 0, "lanes": 1 + number}
        running = [Life(folder, home, rank, world, steps[rank], options, states) for rank in range(world)]
        for one in running:
            one.kill()
        saved = [one.saved() for one in running]
        states = [state for state, _ in saved]
        for _, rows in saved:
            trained.update(rows)
        if number == 0:
            write_sample_log(tmp_path / "log", SMALL, late=True)
            cli("table", "add", "log", tmp_path / "log", "--time-column", "time")
    assert trained == wanted(home)
    assert sum(trained.values()) > 289, "late rows came"


@pytest.mark.slow
def test_trainers_that_are_killed_at_any_moment_train_each_event_once(home, tmp_path):
    """A batch that was handed out and is not in the saved state is handed out again, as its step is not in the saved weights."""
    trained: Counter = Counter()
    states: list = []
    for number in range(3):
        folder = tmp_path / f"life-{number}"
        folder.mkdir()
        running = [Life(folder, home, rank, 2, 0, {"batch_rows": 4}, states) for rank in range(2)]
        for one in running:
            while one.process.poll() is None and not one.state.exists():
                time.sleep(0.002)
        if number < 2:
            running[number].process.kill()
        for one in running:
            one.kill()
        saved = [one.saved() for one in running]
        states = [state for state, _ in saved]
        for _, rows in saved:
            trained.update(rows)
    assert trained == wanted(home)


def test_damaged_states_are_refused(home):
    loader = hr.batches("first", home=home)
    state = loader.state_dict()
    for name, value in (("steps", -1), ("plan", "x"), ("rank", 1), ("format", "headrace.loader/9"), ("world", 2.0)):
        with pytest.raises(HeadraceError):
            loader.load_state_dict({**state, name: value})
    with pytest.raises(HeadraceError):
        loader.load_state_dict({**state, "more": 1})
    assert sum(batch.rows for batch in loader) > 200
