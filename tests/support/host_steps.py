"""That all hosts of a job train: a test of several hosts on a small log must not test one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_hosts_train(report: Mapping[str, Any], hosts: int, *, epochs: int | None = None) -> None:
    """Of the JSON of ``headrace train``: every host had events in all steps but the last one of each epoch.

    ``epochs``: those of the command; by default all of the run.
    """
    steps, ends = report["steps_by_host"], epochs or len(report["epochs"])
    assert len(steps) == hosts
    assert max(steps.values()) > ends, "an epoch of one step is no test of several hosts"
    assert min(steps.values()) >= max(steps.values()) - ends
    assert report["idle_host_steps_share"] <= ends / max(steps.values())
