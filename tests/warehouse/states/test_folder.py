"""Links of states follow each other, and a kill at any call of the system leaves the last complete one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.states.scenes import add_link, as_set, rows
from transforms.errors import Busy, NotFound
from warehouse.errors import StatesDamaged
from warehouse.states.exact_rows import row_difference
from warehouse.states.folder import link_names, locked_folder, read_states
from warehouse.states.link import StatesLink


def test_deltas_are_replayed(tmp_path):
    with pytest.raises(NotFound):
        read_states(tmp_path)
    for number in range(4):
        link = add_link(tmp_path, number)
        found = read_states(tmp_path)
        assert (found.link, found.links) == (link, number + 1)
        assert {name: as_set(one) for name, one in found.rows.items()} == {
            name: as_set(one) for name, one in rows(number).items()
        }
    assert link_names(tmp_path) == ["000000-full", "000001-delta", "000002-delta", "000003-delta"]


def test_equal_links_have_equal_bytes(tmp_path):
    for name in ("a", "b"):
        for number in range(2):
            add_link(tmp_path / name, number)
    files = [
        sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*") if path.is_file())
        for name in "ab"
    ]
    assert files[0] == files[1]
    assert all((tmp_path / "a" / one).read_bytes() == (tmp_path / "b" / one).read_bytes() for one in files[0])


def test_a_link_that_does_not_follow_is_refused(tmp_path):
    for number in range(3):
        add_link(tmp_path, number)
    (tmp_path / "000001-delta").rename(tmp_path / "gone")
    with pytest.raises(StatesDamaged, match="follow the one before"):
        read_states(tmp_path)
    (tmp_path / "gone").rename(tmp_path / "000001-delta")
    (tmp_path / "000000-full").rename(tmp_path / "gone")
    with pytest.raises(StatesDamaged, match="must be a full one"):
        read_states(tmp_path)
    (tmp_path / "gone").rename(tmp_path / "000003-full")
    with pytest.raises(StatesDamaged, match="folder of its number"):
        read_states(tmp_path)


def test_one_process_writes(tmp_path):
    with locked_folder(tmp_path), pytest.raises(Busy, match="another process"), locked_folder(tmp_path):
        pass


#: What changes files, as the interpreter audits it; each is a place at which a process may end.
_EVENTS = ("open", "os.rename", "os.mkdir", "os.chmod", "fcntl.flock", "os.listdir")


def _killed(folder: str, number: int, at: int) -> None:
    """Add a link in a process that ends at the event ``at``."""
    seen = [0]

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event in _EVENTS and folder in str(arguments):
            seen[0] += 1
            if seen[0] > at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    add_link(Path(folder), number)


@pytest.mark.slow
def test_a_kill_anywhere_leaves_the_last_complete_link(tmp_path):
    add_link(tmp_path, 0)
    children = multiprocessing.get_context("forkserver")
    children.set_forkserver_preload(["tests.warehouse.states.test_folder"])
    killed = 0
    for at in range(200):
        child = children.Process(target=_killed, args=(str(tmp_path), 1, at))
        child.start()
        child.join(PATIENCE_SECS)
        assert child.exitcode in (0, -signal.SIGKILL)
        found = read_states(tmp_path)
        expected = rows(found.link.number)
        assert {name: as_set(one) for name, one in found.rows.items()} == {
            name: as_set(one) for name, one in expected.items()
        }
        if found.link.number == 1:
            break
        killed += 1
    assert killed > 8, "the link came too early to be killed on its way"
    assert add_link(tmp_path, 2).name == "000002-delta"
    assert not list(tmp_path.glob(".unfinished-*"))


_VALUES = st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")])


@given(st.lists(st.tuples(_VALUES, st.none() | st.sampled_from(["", "a"])), max_size=12), st.lists(st.tuples(_VALUES, st.none() | st.sampled_from(["", "a"])), max_size=12))  # fmt: skip
def test_a_difference_turns_one_multiset_into_the_other(before, after):
    tables = [
        pa.table({"x": pa.array([x for x, _ in one], pa.float64()), "s": pa.array([s for _, s in one], pa.string())})
        for one in (before, after)
    ]
    removed, added = row_difference(*tables)
    kept = np.setdiff1d(np.arange(len(before)), removed)
    found = pa.concat_tables([tables[0].take(pa.array(kept, pa.int64())), tables[1].take(pa.array(added))])
    assert as_set(found) == as_set(tables[1])
    assert len(removed) + len(added) == 0 or not set(as_set(tables[0].take(pa.array(removed)))) & set(
        as_set(tables[1].take(pa.array(added)))
    )


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    link = add_link(tmp_path, 0)
    data = (tmp_path / link.name / "manifest.json").read_bytes()
    assert StatesLink.from_bytes(data, "here") == link
    assert link.to_bytes() == data
