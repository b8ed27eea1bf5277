"""The samples of all hosts as one, from which the number of readers is computed. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from trainer.scheduling.buffer_control import BufferControl, BufferSample, BufferSettings, control_readers
from trainer.scheduling.orders import WantRoles


def add_sample(earlier: BufferSample | None, later: BufferSample) -> BufferSample:
    """Two consecutive samples of one host as one."""
    if earlier is None:
        return later
    return replace(
        later,
        consumed_rows=earlier.consumed_rows + later.consumed_rows,
        busy_secs=earlier.busy_secs + later.busy_secs,
        served_units=earlier.served_units + later.served_units,
        served_rows=earlier.served_rows + later.served_rows,
        served_secs=earlier.served_secs + later.served_secs,
        wait_secs=earlier.wait_secs + later.wait_secs,
    )


def join_samples(at_secs: float, samples: Mapping[str, BufferSample]) -> BufferSample:
    """The samples of all hosts over the same time as one. There is at least one."""
    found = list(samples.values())
    return BufferSample(
        at_secs=at_secs,
        fullness=min(one.fullness for one in found),
        consumed_rows=sum(one.consumed_rows for one in found),
        busy_secs=statistics.fmean(one.busy_secs for one in found),
        served_units=sum(one.served_units for one in found),
        served_rows=sum(one.served_rows for one in found),
        served_secs=sum(one.served_secs for one in found),
        flying_secs_per_row=statistics.median(one.flying_secs_per_row for one in found),
        left_units=sum(one.left_units for one in found),
        wait_secs=statistics.fmean(one.wait_secs for one in found),
    )


class WantedReaders:
    """The number of readers that should run, from the hosts' samples.

    ``settings``: without the limits of readers, which the job gives.
    """

    def __init__(self, settings: BufferSettings) -> None:
        self._settings = settings
        self._control = BufferControl()
        self._samples: dict[str, BufferSample] = {}

    def add(self, host: str, sample: BufferSample) -> None:
        """Add what a host measured since its sample before."""
        self._samples[host] = add_sample(self._samples.get(host), sample)

    def update(self, at_secs: float, limits: WantRoles) -> None:
        """Compute the number again from the samples since the last update, if there are any."""
        if not self._samples:
            return
        most = limits.most_readers
        settings = replace(self._settings, least_readers=min(limits.least_readers, most), most_readers=most)
        self._control = control_readers(self._control, join_samples(at_secs, self._samples), settings)
        self._samples = {}

    def wanted(self, limits: WantRoles) -> int:
        """The wanted number, within the job's limits."""
        return min(max(self._control.readers, limits.least_readers), limits.most_readers)
