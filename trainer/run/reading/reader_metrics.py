"""The metrics of a reader, from its status and the times of its units."""

from __future__ import annotations

from collections.abc import Mapping

from transforms.metrics.declarations import counter, durations, gauge
from transforms.metrics.families import Distribution, Family, single

UNITS = durations("headrace_reader_unit_seconds", "Time in which a unit was read and packed.")
WAITS = durations("headrace_reader_queue_seconds", "Time in which the request of a unit waited for others to be read.")
ROWS = counter("headrace_reader_rows_total", "Rows of units that the reader served.")
BYTES = counter("headrace_reader_packed_bytes_total", "Bytes of packed units that the reader served.")
ACTIVE = gauge("headrace_reader_active_units", "Units that are being read, packed or sent.")
SPEED = gauge("headrace_reader_rows_per_second", "Rows of the last seconds per second.")
LEAVING = gauge("headrace_reader_leaving", "1 once the reader refuses new units.")
METRICS = (UNITS, WAITS, ROWS, BYTES, ACTIVE, SPEED, LEAVING)


def reader_families(status: Mapping[str, float], units: Distribution, waits: Distribution) -> tuple[Family, ...]:
    """The metrics of a reader with this status; ``units``, ``waits``: seconds."""
    return (
        single(UNITS, units),
        single(WAITS, waits),
        single(ROWS, status["rows"]),
        single(BYTES, status["bytes"]),
        single(ACTIVE, status["active"]),
        single(SPEED, status["rows_per_sec"]),
        single(LEAVING, float(status["leaving"])),
    )
