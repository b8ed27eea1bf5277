"""A target follows a chain: links are applied as they are added, also while they are being copied."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.trainer.serving.deltas.histories import history
from trainer.checkpoints.open_run import open_run
from trainer.errors import LinkRefused, MissingLink, TornCheckpoint
from trainer.serving.apply_chain import Applied, apply_chain, follow_chain
from trainer.serving.deltas.chain_files import link_places, open_chain
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.deltas.served_rows import open_served

COMMITS = history(31, 4)
SECS = 0.5


class Stopped(Exception):
    """What ends a wait for links."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """A chain of a full snapshot and three deltas."""
    folder = tmp_path_factory.mktemp("exported")
    for epochs in (1, 2, 3, 4):
        COMMITS.commit(folder / "run", epochs)
        export = export_full if epochs == 1 else export_delta
        export(open_run(str(folder / "run")), folder / "chain")
    return folder / "chain"


def link_folders(chain: Path) -> list[Path]:
    """The folders of links by number."""
    return [chain / one.name for one in link_places(open_chain(chain))]


def followed(chain: Path, target: Path, looks) -> list[Applied]:
    """What is applied while each of ``looks`` is done, one between two looks."""
    steps, secs = iter(looks), [0.0]

    def wait() -> None:
        secs[0] += SECS
        step = next(steps, None)
        if step is None:
            raise Stopped
        step()

    found: list[Applied] = []
    following = follow_chain(chain, target, wait=wait, clock=lambda: secs[0])
    with pytest.raises(Stopped):
        found.extend(following)
    return found


def copies(source: Path, to: Path, order: random.Random):
    """Copies one file after the other in any order, first its begin and then all of it."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    order.shuffle(files)
    for path in files:
        place, data = to / path.relative_to(source.parent), path.read_bytes()
        for part in (data[: len(data) // 2], data):

            def write(place=place, part=part):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(part)

            yield write


@pytest.mark.parametrize("seed", range(6))
def test_links_that_are_copied_file_by_file_are_applied_once_they_are_whole(exported, tmp_path, seed):
    chain, links = tmp_path / "chain", link_folders(exported)
    order, looks = random.Random(seed), [lambda: None]
    for link in links:
        looks += [*copies(link, chain, order), lambda: None]
    found = followed(chain, tmp_path / "served", looks)
    assert [one.manifest.name for each in found for one in each.links] == [one.name for one in links]
    assert len(found) == len(links)
    apply_chain(exported, tmp_path / "expected")
    one, other = open_served(tmp_path / "served"), open_served(tmp_path / "expected")
    assert one.to_bytes() == other.to_bytes()


def test_links_that_are_there_are_applied_at_once(exported, tmp_path):
    found = followed(exported, tmp_path / "served", [lambda: None] * 3)
    assert [len(one.links) for one in found] == [4]
    assert followed(exported, tmp_path / "served", [lambda: None] * 3) == []


def test_a_link_that_stays_damaged_ends_it_after_a_while_and_changes_nothing(exported, tmp_path):
    chain = tmp_path / "chain"
    shutil.copytree(exported, chain)
    values = next((chain / "000003-delta").glob("*.values"))
    data = values.read_bytes()
    values.write_bytes(data[:-1])
    looks, secs = [0], [0.0]

    def wait() -> None:
        looks[0] += 1
        secs[0] += 1.0

    with pytest.raises(TornCheckpoint):
        next(follow_chain(chain, tmp_path / "served", wait=wait, clock=lambda: secs[0], patience_secs=9.5))
    assert looks[0] == 10
    assert open_served(tmp_path / "served") is None
    values.write_bytes(data)
    assert len(followed(chain, tmp_path / "served", [])) == 1


def test_links_of_another_chain_end_it(exported, tmp_path):
    other = tmp_path / "other"
    COMMITS.commit(tmp_path / "run", 2)
    export_full(open_run(str(tmp_path / "run")), other)
    apply_chain(exported, tmp_path / "served")
    with pytest.raises(LinkRefused):
        next(follow_chain(other, tmp_path / "served", wait=lambda: None))


@pytest.mark.parametrize("seed", range(4))
def test_links_that_arrive_in_any_order_are_applied_once_those_before_them_are_there(exported, tmp_path, seed):
    """A copy of many folders need not begin with the full snapshot."""
    chain, links = tmp_path / "chain", link_folders(exported)
    order = [*links[1:], links[0]] if seed == 0 else random.Random(seed).sample(links, len(links))
    looks = [lambda link=link: shutil.copytree(link, chain / link.name) for link in order]
    found = followed(chain, tmp_path / "served", [*looks, lambda: None])
    assert [one.manifest.name for each in found for one in each.links] == [one.name for one in links]
    assert len(found) <= len(links)


def test_a_delta_of_a_state_that_lacks_the_one_before_it_waits(exported, tmp_path):
    links = link_folders(exported)
    chain = tmp_path / "chain"
    shutil.copytree(links[0], chain / links[0].name)
    apply_chain(chain, tmp_path / "served")
    shutil.rmtree(chain)
    looks = [lambda link=link: shutil.copytree(link, chain / link.name) for link in (links[3], links[2], links[1])]
    found = followed(chain, tmp_path / "served", [*looks, lambda: None])
    assert [one.manifest.name for each in found for one in each.links] == [one.name for one in links[1:]]


def test_a_full_snapshot_that_never_arrives_ends_it_after_a_while(exported, tmp_path):
    chain, secs = tmp_path / "chain", [0.0]
    shutil.copytree(link_folders(exported)[1], chain / "000001-delta")

    def wait() -> None:
        secs[0] += 1.0

    with pytest.raises(MissingLink, match="must begin with a full snapshot"):
        next(follow_chain(chain, tmp_path / "served", wait=wait, clock=lambda: secs[0], patience_secs=9.5))
    assert secs[0] == 10.0
    assert not (tmp_path / "served").exists()
