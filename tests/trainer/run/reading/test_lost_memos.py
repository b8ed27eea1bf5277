"""A solution that loses its memos while it is read: they are computed, with the same batches, and reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainer.synthetic import config
from tests.warehouse.scenes import FREE_READS, model, work, write_log
from trainer.model.inputs import TypedInput, lay_out
from trainer.run.reading.batches import make_batches
from trainer.run.reading.packed_units import UnitDecoder
from trainer.run.reading.reader_service import ReaderService
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_fetching import RemoteFetcher
from trainer.run.reading.unit_reader import UnitReader, read_by_solution
from trainer.run.reading.unit_requests import UnitRequest
from trainer.wire.flight.addresses import Address
from warehouse import Warehouse, WarehouseConfig, read_solution, register_table, submit_model
from warehouse.storage.storage import Storage

ROWS = 20


@pytest.fixture
def solution(tmp_path):
    """The read solution of a model whose inputs are memos, in ``tmp_path/home``."""
    root = write_log(tmp_path / "log", hours=4, rows=ROWS)
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), read_threads=1, rates=FREE_READS)) as warehouse:
        register_table(warehouse, "log", str(root))
        submit_model(warehouse, model())
        work(warehouse)
        found = read_solution(warehouse, "ctr")
    assert found.count("load") == 4 * 2
    return found


def batches(solution, home: Path, after_first, report):
    """All batches by a service, in units of 5 rows; ``after_first`` is called when the first unit was delivered."""
    digest = solution.digest()
    requests = [
        UnitRequest(number, 1, digest, key, first, 5)
        for number, (key, first) in enumerate(
            (f"{part.key}#{position}", first)
            for part in solution.partitions
            for position, _ in enumerate(part.fragments)
            for first in range(0, ROWS, 5)
        )
    ]
    layout = lay_out([TypedInput(item.name, item.type) for item in solution.inputs], config("run"))
    reader = UnitReader(lambda _digest: solution, read_by_solution(Storage(str(home)), report), kept_bytes=0)
    with ReaderService(Address("127.0.0.1", 0), reader) as service:
        buffer = UnitBuffer(iter(requests[:1]), lambda name: RemoteFetcher(name), UnitDecoder(layout))
        try:
            buffer.set_readers([str(service.address)])
            units = list(buffer)
            after_first()
            buffer.extend(requests[1:])
            units += list(buffer)
        finally:
            buffer.close()
    return list(make_batches([decoded for _, decoded in units], layout, batch_rows=7))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("lose", [Path.unlink, damage, lambda path: path.write_bytes(b"")])
def test_memos_that_are_lost_midway_are_computed_and_reported_once(tmp_path, solution, lose):
    home, reports = tmp_path / "home", []
    expected = batches(solution, home, lambda: None, lambda *report: reports.append(report))
    assert reports == []
    memos = list((home / "memos").rglob("*.memo"))
    assert memos

    def lose_all():
        for path in memos:
            lose(path)

    found = batches(solution, home, lose_all, lambda *report: reports.append(report))
    for one, other in zip(expected, found, strict=True):
        assert one.ids.ids.tolist() == other.ids.ids.tolist()
        assert one.ids.offsets.tolist() == other.ids.offsets.tolist()
        assert np.array_equal(one.dense, other.dense)
        assert np.array_equal(one.labels, other.labels)
    assert len({memo for memo, _, _ in reports}) == len(reports) > 0
    assert {home / path for _, path, _ in reports} <= set(memos)
