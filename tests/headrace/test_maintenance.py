"""``headrace pins``, ``gc``, ``compact`` and ``verify`` from the command line."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import train as train_command
from headrace.cli.training_jobs import pin_new
from tests.headrace.test_commands import check_golden
from warehouse import Warehouse, WarehouseConfig, live_pins, pinned_solution


@pytest.fixture
def kept(submitted: Any) -> Any:
    """Two models' memos, all computed: four files of four columns."""
    submitted("work", "--until-idle")
    return submitted


def fingerprint(cli: Any, column: str) -> str:
    found: str = cli("graphs", "search", "--column", column, "--json").json["graphs"][0]["fingerprint"]
    return found


def test_evict_compact_collect_verify(kept: Any, tmp_path: Path) -> None:
    check_golden("pins_none", kept("pins").out)
    check_golden("gc_nothing", kept("gc").out)
    check_golden("compact_nothing", kept("compact").out)
    check_golden("verify_well", kept("verify", "--recompute", 5).out)
    kept("graphs", "evict", fingerprint(kept, "user_id"), "--yes")
    kept("graphs", "evict", fingerprint(kept, "ad_title"), "--yes")
    rewrite = ("compact", "--threshold", 1, "--least-gain-bytes", 1)
    planned = kept(*rewrite, "--json").json
    check_golden("compact_planned", kept(*rewrite).out)
    done = kept(*rewrite, "--yes", "--json").json
    assert (planned["old_files"], done["old_files"], done["new_files"], done["memos"]) == (4, 4, 4, 8)
    check_golden("gc_planned", kept("gc").out)
    assert len(list((tmp_path / "home/memos").rglob("*.memo"))) == 8
    check_golden("gc_done", kept("gc", "--yes").out)
    assert len(list((tmp_path / "home/memos").rglob("*.memo"))) == 4
    assert kept("verify", "--json").json["findings"] == []
    (tmp_path / "home/memos/mine\x1b[31m.txt").write_text("mine")
    assert "not created by Headrace, not deleted: 1 path\n  memos/mine\\x1b[31m.txt\n" in kept("gc", "--yes").out
    assert kept("gc", "--json").json["foreign"] == ["memos/mine\\x1b[31m.txt"]


def test_damage_is_status_3_until_it_is_repaired(kept: Any, tmp_path: Path) -> None:
    one, other, *_ = sorted((tmp_path / "home/memos").rglob("*.memo"))
    one.unlink()
    other.write_bytes(other.read_bytes()[:-50])
    found = kept("verify", status=3)
    check_golden("verify_wrong", _without_names(found.out, one, other))
    assert {row["kind"] for row in kept("verify", "--json", status=3).json["findings"]} == {
        "missing file",
        "damaged memo",
    }
    check_golden("verify_repaired", _without_names(kept("verify", "--repair").out, one, other))
    assert kept("work", "--until-idle", "--json").json["memos"] == 8
    assert kept("verify", "--recompute", 16, "--json").json["wrong"] == 0


def _without_names(text: str, *files: Path) -> str:
    for number, file in enumerate(files):
        text = text.replace(file.name, f"file-{number}")
    return text


def test_what_a_job_reads_is_listed_and_not_evicted(kept: Any, tmp_path: Path) -> None:
    with (
        Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as warehouse,
        pinned_solution(warehouse, "first", holder="train on host 7"),
    ):
        (row,) = kept("pins", "--json").json["pins"]
        assert (row["holder"], row["model"], row["version"], row["components"]) == ("train on host 7", "first", 1, 3)
        assert 290 < row["expires_in_secs"] <= 300
        text = kept("pins").out
        assert "train on host 7" in text
        assert "first v1" in text
        assert "train on host 7" in kept("graphs", "evict", fingerprint(kept, "price"), "--yes").out
        assert kept("graphs", "show", fingerprint(kept, "price"), "--json").json["memos"] == {"READY": 4}
    assert kept("pins", "--json").json["pins"] == []
    kept("graphs", "evict", fingerprint(kept, "price"), "--yes")


def test_training_pins_what_it_reads(kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole run of the command: while it trains and while it tests."""
    seen: list[list[tuple[str, int]]] = []

    def look(warehouse: Warehouse, *_: object, **__: object) -> Any:
        seen.append([(pin.holder.partition(" on ")[0], len(pin.fingerprints)) for pin in live_pins(warehouse)])
        assert "pin" in {thread.name for thread in threading.enumerate()}
        raise KeyboardInterrupt

    monkeypatch.setattr(train_command, "import_tensorflow_quietly", lambda: None)
    monkeypatch.setattr(train_command, "choose_options", look)
    arguments = ("train", "second", "--end", "2026-03-02T02:00", "--test-end", "2026-03-02T04:00")
    kept(*arguments, status=130)
    assert seen == [[("headrace train", 4), ("headrace train", 4)]]
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as warehouse:
        assert live_pins(warehouse) == ()


def test_a_solution_that_is_resolved_again_is_pinned_once(kept: Any, tmp_path: Path) -> None:
    """As `headrace train --follow` does, whenever its table has another version, for months."""
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as warehouse:
        with ExitStack() as pins:
            resolve = pin_new(pins, lambda: pinned_solution(warehouse, "second", holder="test"))
            assert len({resolve().digest() for _ in range(3)}) == 1
            assert len(live_pins(warehouse)) == 1
        assert live_pins(warehouse) == ()


@pytest.mark.parametrize(
    ("words", "where"),
    [(("verify", "--sample", "1.5"), "--sample"), (("compact", "--threshold", "nan"), "compaction threshold")],
)
def test_shares_out_of_range_are_refused(cli: Any, words: tuple[str, ...], where: str) -> None:
    assert where in cli(*words, status=2).err
