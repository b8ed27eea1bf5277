"""Which messages of a topic a table takes next. Nothing here reads or writes.

Offsets of a partition rise, with gaps: compacted messages, those of aborted transactions, and the markers of transactions have no row.
So a gap between two messages is not a loss. Messages are lost where the topic begins after the offset that the table is at: Kafka
deleted them, by time, by size or by a request, before they were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transforms.errors import DataError, InputError
from warehouse.tables.followed import Start

_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of one partition: of its first message, and after its last readable one."""

    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from ``first`` up to, but not with, ``next``."""

    partition: int
    first: int
    next: int

    @property
    def text(self) -> str:
        """``3: 10-19``, with the last offset."""
        return f"{self.partition}: {self.first}-{self.next - 1}"


@dataclass(frozen=True, slots=True)
class NextOffsets:
    """The next offset of each partition, and what is lost before it."""

    offsets: Mapping[int, int]
    lost: tuple[OffsetRange, ...] = ()


def next_offsets(
    kept: Mapping[int, int] | None, found: Mapping[int, Bounds], start: Start, where: str, *, accept_lost: bool = False
) -> NextOffsets:
    """The offsets at which a table goes on in each partition of its topic.

    A partition that was added to the topic is read from its first message, offset 0, also by a table that began at the newest ones.

    Args:
        kept: the offsets after the last messages of the table; None for a table that begins.
        found: the bounds of the topic's partitions.
        start: where a table begins.
        where: the topic, for errors.
        accept_lost: go on after messages that the topic does not have any more.

    Raises :class:`DataError` for lost messages, unless they are accepted, and for a topic with fewer partitions or offsets than the
    table has messages of.
    """
    if kept is None:
        begin = {partition: one.earliest if start == "earliest" else one.end for partition, one in found.items()}
        return NextOffsets(dict(sorted(begin.items())))
    gone = sorted(kept.keys() - found.keys())
    if gone:
        raise DataError("a topic must keep its partitions: it was deleted and made again with fewer", where=where,
                        value=f"no partition {', '.join(map(str, gone[:_SHOWN]))}", allowed=f"{len(kept)} partitions",
                        next_step="add the topic under another table name")  # fmt: skip
    offsets: dict[int, int] = {}
    lost: list[OffsetRange] = []
    rewound: list[OffsetRange] = []
    for partition, bounds in sorted(found.items()):
        wanted = kept.get(partition, 0)
        if wanted < bounds.earliest:
            lost.append(OffsetRange(partition, wanted, bounds.earliest))
        if wanted > bounds.end:
            rewound.append(OffsetRange(partition, bounds.end, wanted))
        offsets[partition] = min(max(wanted, bounds.earliest), bounds.end)
    if rewound and not accept_lost:
        raise _rewound(rewound, where)
    if lost and not accept_lost:
        raise lost_messages(lost, where)
    return NextOffsets(offsets, tuple(lost))


def lost_messages(lost: list[OffsetRange], where: str) -> DataError:
    """The error of messages that Kafka deleted before they were read."""
    most = sum(one.next - one.first for one in lost)
    return DataError(
        "a topic must keep messages until they are read: those of these offsets were deleted", where=where,
        value=f"{ranges_text(lost)}, at most {most:,} messages",
        next_step="give the topic a longer retention (retention.ms, retention.bytes); --accept-lost goes on after them",
    )  # fmt: skip


def _rewound(rewound: list[OffsetRange], where: str) -> DataError:
    return DataError(
        "a topic must have the messages that were read: it ends before them, so it was made again or lost its newest messages",
        where=where, value=f"messages read but not there: {ranges_text(rewound)}",
        next_step="add the topic under another table name; or, if a broker lost its newest messages, --accept-lost goes on at "
        "the end of the topic",
    )  # fmt: skip


def check_topic_id(known: str, found: str, where: str, table: str) -> None:
    """Raise :class:`DataError` for a topic that was deleted and made again under the same name."""
    if known and found and known != found:
        raise DataError("the topic must be the one that the table was made of: it was deleted and made again",
                        where=where, value=f"topic id {found}", allowed=f"topic id {known}",
                        next_step=f"add it under another table name, or drop this one: headrace table drop {table}")  # fmt: skip


def advance(at: int, offset: int, where: str) -> int:
    """The offset after a message. Raises :class:`DataError` for one that was read before."""
    if offset < at:
        raise DataError("the offsets of a partition must rise", where=where, value=offset, allowed=f"{at} or more",
                        next_step="run the command again")  # fmt: skip
    return offset + 1


def lag(offsets: Mapping[int, int], found: Mapping[int, Bounds]) -> int:
    """How many offsets a table is behind the end of its topic, at most as many messages."""
    return sum(max(bounds.end - offsets.get(partition, 0), 0) for partition, bounds in found.items())


def ranges_text(ranges: list[OffsetRange] | tuple[OffsetRange, ...]) -> str:
    """``0: 10-19, 1: 7-30``, with the number of those that are left out."""
    shown = ", ".join(one.text for one in ranges[:_SHOWN])
    more = len(ranges) - _SHOWN
    return f"{shown} and {more} more partitions" if more > 0 else shown


def check_same(option: str, given: str, stored: str, table: str) -> None:
    """Raise :class:`InputError` for an option that differs from the one that the table was made with."""
    if given and given != stored:
        raise InputError("an option of a topic must stay as it was when the table was added", where=f"table {table}, {option}",
                         value=given, allowed=stored, next_step="leave it out, or use another table name")  # fmt: skip
