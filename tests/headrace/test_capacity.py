from __future__ import annotations

from collections.abc import Callable

from tests.headrace.conftest import Answer


def test_the_hint_works_on_nothing(submitted: Callable[..., Answer]) -> None:
    found = submitted("work", "--autoscale-hint", "--threads", 2, "--json").json
    assert (found["workers"], found["threads"], found["running"]) == (1, 2, 0)
    assert found["binding"] in found["why"]
    assert {one["client"] for one in found["clients"]} == {"search", "shopping"}
    assert all(one["queued"] > 0 and one["secs"] > 0 and one["deadline_secs"] == 3600 for one in found["clients"])
    assert submitted("work", "--autoscale-hint", "--json").json["clients"][0]["queued"] == found["clients"][0]["queued"]
    text = submitted("work", "--autoscale-hint", "--threads", 2).out
    assert "the queue needs 1 worker with 2 threads each; 0 workers have tasks now" in text
    served = submitted("work", "--until-idle", "--metrics-address", 0).err
    assert served.startswith("metrics for Prometheus: http://127.0.0.1:")
    idle = submitted("work", "--autoscale-hint", "--json").json
    assert (idle["workers"], idle["clients"], idle["why"]) == (0, [], "nothing is queued")


def test_nonsense_is_refused(submitted: Callable[..., Answer]) -> None:
    assert "max_workers" in submitted("work", "--autoscale-hint", "--max-workers", 0, status=2).err
    assert "HOST:PORT" in submitted("work", "--until-idle", "--metrics-address", 99_999, status=2).err
