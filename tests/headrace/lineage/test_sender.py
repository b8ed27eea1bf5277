from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cli.options.metrics import MetricsOptions
from headrace.lineage.receivers import EventRefused, FileReceiver, HttpReceiver, lineage_url
from headrace.lineage.sender import COUNTS, LineageCounts, LineageSender, sending_lineage
from headrace.metrics.process import Process
from tests.support.lineage_receiver import LineageReceiver, receiving
from tests.support.lineage_rules import checked_event
from tests.support.processes import free_port, wait_until
from tests.support.scraped import plain, scrape, target
from transforms.metrics.registry import Registry
from warehouse import Warehouse, WarehouseConfig
from warehouse.lineage.documents import Dataset, EventKind, LineageEvent, Run, lineage_event
from warehouse.lineage.outbox import count_waiting, write_events


def event(number: int) -> LineageEvent:
    run = Run([str(number)], "file:///home", "register/log", "IMPORT", (), (Dataset("file:///home", "log"),))
    return lineage_event(run, EventKind.COMPLETE, float(number))


@pytest.fixture
def receiver() -> Iterator[LineageReceiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"))) as opened:
        yield opened


def write(warehouse: Warehouse, first: int, count: int) -> None:
    found = [event(number) for number in range(first, first + count)]
    warehouse.catalog.run(lambda connection: write_events(connection, found, 0.0))


def sender_to(warehouse: Warehouse, url: str, answer_secs: float = 5.0) -> LineageSender:
    receiver = HttpReceiver(lineage_url(url), answer_secs=answer_secs)
    return LineageSender(warehouse, receiver, LineageCounts(), look_secs=0.05)


def test_events_are_sent_in_order_also_those_that_come_later(warehouse, receiver):
    write(warehouse, 0, 60)
    sender = sender_to(warehouse, receiver.url)
    sender.start()
    wait_until(lambda: len(receiver.bodies) == 60, "they are sent", {})
    write(warehouse, 60, 5)
    sender.close()
    assert receiver.problems == []
    assert receiver.bodies == [event(number).document.encode() for number in range(65)]
    assert sender.counts == LineageCounts(sent=65)


def test_a_receiver_with_an_error_gets_each_event_once_it_is_well(warehouse, receiver, caplog):
    receiver.status = 500
    write(warehouse, 0, 3)
    sender = sender_to(warehouse, receiver.url)
    sender.start()
    wait_until(lambda: sender.counts.failures >= 3, "it tries again", {})
    assert (sender.counts.sent, sender.counts.waiting) == (0, 3)
    receiver.status = 201
    wait_until(lambda: sender.counts.sent == 3, "they are sent", {})
    sender.close()
    assert receiver.bodies == [event(number).document.encode() for number in range(3)]
    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1, "one warning, however often it fails"


def test_a_refused_event_does_not_hold_up_others(warehouse, receiver):
    receiver.status = 422
    write(warehouse, 0, 2)
    sender = sender_to(warehouse, receiver.url)
    sender.start()
    sender.close()
    assert (sender.counts.refused, warehouse.catalog.query(count_waiting)) == (2, 0)


@pytest.mark.parametrize("url", ["down", "slow"])
def test_a_receiver_that_is_away_costs_bounded_time_and_no_event(warehouse, receiver, url):
    receiver.delay_secs = 30.0
    write(warehouse, 0, 100)
    sender = sender_to(warehouse, receiver.url if url == "slow" else f"http://127.0.0.1:{free_port()}", answer_secs=0.2)
    sender.start()
    wait_until(lambda: sender.counts.failures > 0, "it fails", {})
    began = time.monotonic()
    sender.close(end_secs=1.0)
    assert time.monotonic() - began < 3.0
    assert warehouse.catalog.query(count_waiting) == 100


def test_a_token_is_read_from_its_file(receiver, tmp_path):
    (tmp_path / "token").write_text("secret\n", encoding="utf-8")
    HttpReceiver(lineage_url(receiver.url), str(tmp_path / "token"))(event(1).document)
    assert receiver.tokens == {"Bearer secret"}
    with pytest.raises(OSError, match="absent"):
        HttpReceiver(lineage_url(receiver.url), str(tmp_path / "absent"))(event(1).document)


@pytest.mark.parametrize("status", [400, 409, 422])
def test_an_answer_about_the_event_is_a_refusal(receiver, status):
    receiver.status = status
    with pytest.raises(EventRefused):
        HttpReceiver(lineage_url(receiver.url))(event(1).document)


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_any_other_answer_may_be_different_later(receiver, status):
    receiver.status = status
    with pytest.raises(OSError, match=str(status)):
        HttpReceiver(lineage_url(receiver.url))(event(1).document)


def test_a_process_that_sends_events_counts_them_in_its_metrics(warehouse, receiver, tmp_path):
    warehouse.config = replace(warehouse.config, lineage=receiver.url)
    write(warehouse, 0, 2)
    before = COUNTS.sent
    options = MetricsOptions("127.0.0.1:0", str(tmp_path / "targets"))
    with sending_lineage(warehouse), options.bound(Process("worker", "w")) as serve:
        serve(Registry())
        wait_until(lambda: COUNTS.sent == before + 2 and COUNTS.waiting == 0, "they are sent", {})
        figures = plain(scrape(target(next((tmp_path / "targets").glob("*.json")))))
    assert figures["headrace_lineage_sent_events_total"] == before + 2
    assert figures["headrace_lineage_waiting_events"] == 0


def test_a_file_grows_by_one_line_an_event(tmp_path):
    file = tmp_path / "lineage.jsonl"
    receiver = FileReceiver(str(file))
    receiver(event(1).document)
    FileReceiver(str(file))(event(2).document)
    lines = file.read_bytes().splitlines()
    assert [checked_event(line)["eventTime"] for line in lines] == [f"1970-01-01T00:00:0{one}.000000Z" for one in (1, 2)]  # fmt: skip
    with pytest.raises(OSError, match="absent"):
        FileReceiver(str(tmp_path / "absent" / "file"))(event(1).document)


def test_the_path_of_a_receiver_is_that_of_the_specification():
    assert lineage_url("http://marquez:5000") == lineage_url("http://marquez:5000/") == "http://marquez:5000/api/v1/lineage"  # fmt: skip
    assert lineage_url("https://h/openapi/openlineage/api/v1/lineage") == "https://h/openapi/openlineage/api/v1/lineage"
