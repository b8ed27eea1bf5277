"""Verification reads every byte of a chain and names the damaged file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.trainer.checkpoints.damage import flipped
from tests.trainer.serving.deltas.histories import history, run_files
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.deltas.verify_chain import LinkCheck, verify_chain
from transforms.errors import NotFound


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, commits = tmp_path_factory.mktemp("chain"), history(30, 3)
    for epochs in (1, 2, 3):
        commits.commit(folder / "run", epochs, keep=1)
        (export_full if epochs == 1 else export_delta)(run_files(folder / "run"), folder / "chain")
    return folder / "chain"


def problems(chain: Path) -> list[LinkCheck]:
    return [one for one in verify_chain(chain) if one.problem]


def test_all_files_of_an_intact_chain_are_read(chain):
    found = list(verify_chain(chain))
    assert [one for one in found if one.problem] == []
    files = [path for path in chain.rglob("*") if path.is_file() and path.name != "lock"]
    assert {(one.link, one.file) for one in found} == {(path.parent.name, path.name) for path in files}
    assert {(one.link, one.file): one.size_bytes for one in found} == {(path.parent.name, path.name): path.stat().st_size for path in files}  # fmt: skip
    (full,) = chain.glob("*-full")
    assert {one.link for one in verify_chain(full)} == {full.name}
    with pytest.raises(NotFound, match="must hold a link"):
        list(verify_chain(chain / "absent"))


def test_each_damaged_missing_or_longer_file_is_named(chain):
    for path in [path for path in sorted(chain.rglob("*")) if path.is_file() and path.name != "lock"]:
        data = path.read_bytes()
        damages = [None, data + b"x", *([data[:-1], flipped(data, len(data) // 2, 3)] if data else [])]
        for damage in damages:
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
            if damage is None and path.name == "rows.json":  # as in a chain that was copied without it
                assert problems(chain) == []
            else:
                named = {(one.link, one.file) for one in problems(chain)}
                assert (path.parent.name, path.name) in named
                assert len({name for name, _ in named}) == 1
            path.write_bytes(data)
    assert problems(chain) == []


def test_a_link_of_another_chain_or_a_missing_link_is_named(chain, tmp_path):
    shutil.copytree(chain, tmp_path / "gap")
    shutil.rmtree(tmp_path / "gap" / "000001-delta")
    assert [(one.link, one.file) for one in problems(tmp_path / "gap")] == [("000002-delta", "manifest.json")]
    other = history(31, 1)
    other.commit(tmp_path / "run", 1)
    export_full(run_files(tmp_path / "run"), tmp_path / "other")
    shutil.copytree(chain, tmp_path / "mixed")
    shutil.rmtree(tmp_path / "mixed" / "000000-full")
    shutil.copytree(tmp_path / "other" / "000000-full", tmp_path / "mixed" / "000000-full")
    assert [(one.link, one.file) for one in problems(tmp_path / "mixed")] == [("000001-delta", "manifest.json")]
