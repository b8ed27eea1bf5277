"""The host's buffer decides how many units are in flight and how many readers run. Pure.

By Little's law, units in flight are the host's speed times the time that a unit takes. The host's speed is that of the time in which
it was not starved, so a starved host asks for what it could consume.

The number of readers grows at once while the buffer is not full enough, and shrinks when a smaller number was enough for
``shrink_after_secs``: it changes rarely and starves no host. Bytes are reserved before a unit is requested, so memory is bounded whatever the number of readers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from transforms.derived_documents import Omitted
from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """The limits of a host's buffer and of the readers that fill it.

    Attributes:
        limit_bytes: of units in the buffer, with those that are reserved for units in flight.
        low: the fullness below which readers may be added.
        margin: the share of readers above the computed number; twice as much for an empty buffer.
        units_per_reader: units that one reader serves at once.
        least_readers, most_readers: limits of the number of readers.
        shrink_after_secs: how long a smaller number must have been enough.
        shrink_share: the least share of readers that is removed; less is not worth a change.
        weight: the weight of one measured unit, and of one sample of the hosts' speed, in their means.
    """

    limit_bytes: int = 256 << 20
    low: float = 0.75
    margin: float = 0.25
    units_per_reader: int = 2
    least_readers: int = 1
    most_readers: int = 64
    shrink_after_secs: float = 60.0
    shrink_share: float = 0.2
    weight: float = 0.125

    def __post_init__(self) -> None:
        counts = 0 <= self.least_readers <= self.most_readers and self.units_per_reader >= 1 and self.limit_bytes >= 1
        shares = (
            0 < self.low <= 1 and 0 < self.weight <= 1 and 0 <= self.margin < math.inf and 0 <= self.shrink_share < 1
        )
        if not (counts and shares and 0 <= self.shrink_after_secs < math.inf):
            raise InputError("settings of a buffer must be in the allowed range", value=self,
                             allowed="0 <= least_readers <= most_readers, units_per_reader and limit_bytes >= 1, "
                             "shares in (0, 1], seconds >= 0")  # fmt: skip


@dataclass(frozen=True, slots=True)
class BufferSample:
    """What was measured since the sample before, for all hosts together.

    Attributes:
        at_secs: the moment.
        fullness: the buffered bytes as a share of the limit, of the emptiest host.
        consumed_rows: rows that were trained.
        busy_secs: the time in which the hosts were not starved and had work, on average over hosts.
        served_units, served_rows: what readers delivered.
        served_secs: the time from the assignment of those units to their delivery, added up.
        flying_secs_per_row: the median over units in flight of the time since their assignment per row; 0 without any.
        left_units: the units that are not delivered yet, as far as there is data.
        wait_secs: the part of ``busy_secs`` in which hosts waited for rows of tables, on average over hosts.
    """

    at_secs: float
    fullness: float
    consumed_rows: int
    busy_secs: float
    served_units: int
    served_rows: int
    served_secs: float
    flying_secs_per_row: float
    left_units: int
    wait_secs: Omitted[float] = 0.0


@dataclass(frozen=True, slots=True)
class BufferControl:
    """The state of the control, and what it wants.

    Attributes:
        readers: the wanted number of readers.
        host_rows_per_sec: the speed of the hosts when they are not starved; 0 before it was measured.
        unit_secs_per_row: the time that a reader takes per row of a unit; 0 before it was measured.
        wishes: earlier numbers of readers as (moment, readers), oldest first.
    """

    readers: int = 0
    host_rows_per_sec: float = 0.0
    unit_secs_per_row: float = 0.0
    wishes: tuple[tuple[float, int], ...] = ()


def control_readers(held: BufferControl, sample: BufferSample, settings: BufferSettings) -> BufferControl:
    """The control after a sample. Deterministic; a clock that was set back discards the wishes of its future."""
    held = replace(
        held,
        host_rows_per_sec=_mean(held.host_rows_per_sec, sample.consumed_rows, sample.busy_secs, 1, settings),
        unit_secs_per_row=_mean(
            held.unit_secs_per_row, sample.served_secs, sample.served_rows, sample.served_units, settings
        ),
    )
    wish = _wish(held, sample, settings)
    oldest = sample.at_secs - settings.shrink_after_secs
    wishes = (*(one for one in held.wishes if oldest < one[0] <= sample.at_secs), (sample.at_secs, wish))
    recent = max(count for _, count in wishes)
    shrinks = recent <= held.readers * (1 - settings.shrink_share)
    readers = max(wish, recent if shrinks else min(held.readers, settings.most_readers))
    return replace(held, readers=readers, wishes=_thinned(wishes))


def _mean(before: float, amount: float, per: float, count: int, settings: BufferSettings) -> float:
    """The mean of ``amount / per``, moved by ``count`` measurements."""
    if per <= 0 or not count or not amount:
        return before
    weight = 1.0 if before <= 0 else 1 - (1 - settings.weight) ** count
    return before + weight * (amount / per - before)


def _wish(held: BufferControl, sample: BufferSample, settings: BufferSettings) -> int:
    # Units in flight that are late say so before they are delivered.
    secs_per_row = max(held.unit_secs_per_row, sample.flying_secs_per_row)
    lack = max(0.0, 1 - sample.fullness / settings.low)
    flying = held.host_rows_per_sec * secs_per_row * (1 + settings.margin * (1 + lack))
    wanted = math.ceil(min(flying, sample.left_units) / settings.units_per_reader * (1 - 1e-9))
    wanted = min(wanted, held.readers) if sample.fullness >= settings.low else wanted
    least = max(settings.least_readers, 1 if sample.left_units else 0)
    return min(max(wanted, least), settings.most_readers)


def _thinned(wishes: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
    """Drop requests that a later, larger one supersedes: each that stays is above all later ones."""
    kept: list[tuple[float, int]] = []
    for wish in reversed(wishes):
        if not kept or wish[1] > kept[-1][1]:
            kept.append(wish)
    return tuple(reversed(kept))


def units_to_request(
    settings: BufferSettings, *, buffered_bytes: int, flying_units: int, unit_bytes: int, readers: int
) -> int:
    """The number of units to request now.

    Args:
        buffered_bytes: of delivered units.
        flying_units: requested units that are not delivered.
        unit_bytes: the largest unit so far, or an estimate; so much is reserved for each unit in flight.
        readers: the readers that run.
    """
    space = settings.limit_bytes - buffered_bytes - flying_units * unit_bytes
    fitting = space // max(unit_bytes, 1)
    if not buffered_bytes and not flying_units:
        fitting = max(fitting, 1)  # a unit larger than the whole buffer is trained alone
    return int(max(0, min(fitting, readers * settings.units_per_reader - flying_units)))


def accepts_unit(settings: BufferSettings, *, buffered_bytes: int, unit_bytes: int, is_next: bool) -> bool:
    """Whether a delivered unit may be read from its stream: it fits, or the host needs it next. Others wait at their readers."""
    return is_next or buffered_bytes + unit_bytes <= settings.limit_bytes
