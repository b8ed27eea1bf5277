"""The buckets in which the hosts of a job add their dense gradients: fixed by the model and the number of hosts. Pure.

The gradients follow each other in the order of the model's variables. The backward pass gives those of the last layers first, so the
first bucket is the end of the vector.

Where hosts update their segments of the weights, all buckets have segments, and variables and segments begin at multiples of some floats.
On a grid all buckets have segments, too: those of the hosts of a place lie side by side, and are the column of the place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer.model.optimizers.segments import offsets_of
from trainer.planning.host_grid import HostGrid

#: The size of a bucket; a smaller model has one. Of 256 KiB to 4 MiB the best of benchmarks/dense_all_reduce.py for 2 and 4 hosts together.
BUCKET_BYTES = 2 << 20
#: A bucket is sent whole to all hosts, in one round of messages in place of two, if that sends at most so many bytes more.
ONE_ROUND_BYTES = 64 << 10
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Bucket:
    """The floats from ``start`` to ``stop`` of the vector.

    Attributes:
        is_whole: it goes whole to all hosts, each of which adds all of it; else each host adds one of its segments.
        segments: by host, the first float of its segment and the one after the last.
        columns: of a grid, the same by place of a machine, over the segments of all hosts of the place; without a grid none.
    """

    start: int
    stop: int
    is_whole: bool
    segments: tuple[tuple[int, int], ...]
    columns: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GradientBuckets:
    """The buckets of a model on some hosts, in the order in which they are sent.

    Attributes:
        size: the floats of the vector.
        buckets: from the end of the vector to its beginning; at least one.
        groups: variables, by their places in the model's order, that are handed over together, in the order of the backward pass.
        sizes: by variable, its floats.
        offsets: by variable, its first float.
        ready: by group, the buckets that are complete when its variables, and those of the groups before, are there.
        grid: of the hosts, where they add in two legs.
    """

    size: int
    buckets: tuple[Bucket, ...]
    groups: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    ready: tuple[int, ...]
    grid: HostGrid | None = None

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        hosts: int,
        bucket_bytes: int = BUCKET_BYTES,
        *,
        aligned: int = 1,
        grid: HostGrid | None = None,
    ) -> GradientBuckets:
        """The buckets of variables with so many floats each, one for a single host; ``bucket_bytes``: at least 4.

        ``aligned``: where hosts update segments, variables and segments begin at multiples of so many floats, and no bucket is whole; 1: they do not.
        ``grid``: of the hosts, which then add in two legs.
        """
        *offsets, total = offsets_of(sizes, aligned)
        floats = bucket_bytes // _FLOAT_BYTES if hosts > 1 else max(total, 1)
        bounds = dict.fromkeys(bound - bound % aligned for bound in (*range(total, 0, -floats), 0)) if total else (0, 0)
        cuts = [_cuts(start, stop, hosts, aligned) for stop, start in pairwise(bounds)]
        buckets = tuple(
            _whole_or_segments(one, hosts, aligned) if grid is None else _columns(one, grid) for one in cuts
        )
        groups, ready = _groups(offsets, [one.start for one in buckets])
        return cls(total, buckets, tuple(groups), tuple(sizes), tuple(offsets), tuple(ready), grid)

    @property
    def whole_floats(self) -> int:
        """The floats of the buckets that go whole to all hosts."""
        return sum(one.stop - one.start for one in self.buckets if one.is_whole)


def _groups(offsets: Sequence[int], starts: Sequence[int]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Groups that each complete at least one bucket, and the buckets that are complete after each; ``starts``: of the buckets."""
    groups: list[tuple[int, ...]] = []
    ready: list[int] = []
    group: tuple[int, ...] = ()
    from_end = [-start for start in starts]
    for place in reversed(range(len(offsets))):
        group = (*group, place)
        complete = bisect_right(from_end, -offsets[place])
        if complete > (ready[-1] if ready else 0):
            groups.append(group)
            ready.append(complete)
            group = ()
    if not groups:
        return [group], [len(starts)]
    groups[-1] += group  # variables without floats
    return groups, ready


def _cuts(start: int, stop: int, hosts: int, aligned: int) -> list[int]:
    """The bounds of a bucket's segments."""
    size = stop - start
    return [*(start + size * number // hosts // aligned * aligned for number in range(hosts)), stop]


def _whole_or_segments(cuts: Sequence[int], hosts: int, aligned: int) -> Bucket:
    """A bucket whose segments are in the order of ranks."""
    start, stop = cuts[0], cuts[-1]
    is_whole = aligned == 1 and _extra_bytes(stop - start, hosts) <= ONE_ROUND_BYTES
    return Bucket(start, stop, is_whole, tuple(pairwise(cuts)))


def _columns(cuts: Sequence[int], grid: HostGrid) -> Bucket:
    """A bucket whose segments are in the order of places, those of a place in the order of machines."""
    segments, columns = list(pairwise(cuts)), list(pairwise(cuts[:: grid.machines]))
    ordered = (segments[place * grid.machines + machine] for machine in range(grid.machines) for place in range(grid.places))  # fmt: skip
    return Bucket(cuts[0], cuts[-1], is_whole=False, segments=tuple(ordered), columns=tuple(columns))


def _extra_bytes(size: int, hosts: int) -> int:
    """The bytes that a host sends more in one round, (H - 1) n, than in two, 2 n (H - 1) / H; none with two hosts."""
    return _FLOAT_BYTES * size * (hosts - 1) * (hosts - 2) // hosts
