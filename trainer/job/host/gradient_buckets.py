"""The buckets in which the hosts of a job add their dense gradients: fixed by the model and the number of hosts. Pure.

The gradients follow each other in the order of the model's variables. The backward pass gives those of the last layers first, so the
first bucket is the end of the vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

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
        segments: by host, the first float and the last but one of its segment.
    """

    start: int
    stop: int
    is_whole: bool
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GradientBuckets:
    """The buckets of a model on some hosts, in the order in which they are sent.

    Attributes:
        size: the floats of all variables.
        buckets: from the end of the vector to its beginning; at least one.
        groups: variables, by their places in the model's order, that are handed over together, in the order of the backward pass.
        offsets: by variable, its first float.
        ready: by group, the buckets that are complete when its variables, and those of the groups before, are there.
    """

    size: int
    buckets: tuple[Bucket, ...]
    groups: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    ready: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], hosts: int, bucket_bytes: int = BUCKET_BYTES) -> GradientBuckets:
        """The buckets of variables with so many floats each, one for a single host; ``bucket_bytes``: at least 4."""
        offsets = [0, *accumulate(sizes)]
        total = offsets[-1]
        floats = bucket_bytes // _FLOAT_BYTES if hosts > 1 else max(total, 1)
        stops = range(total, 0, -floats) or (0,)
        buckets = tuple(_bucket(max(stop - floats, 0), stop, hosts) for stop in stops)
        groups, ready = _groups(offsets, floats, len(buckets))
        return cls(total, buckets, tuple(groups), tuple(offsets[:-1]), tuple(ready))


def _groups(offsets: Sequence[int], floats: int, buckets: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """Groups that each complete at least one bucket, and the buckets that are complete after each."""
    groups: list[tuple[int, ...]] = []
    ready: list[int] = []
    group: tuple[int, ...] = ()
    for place in reversed(range(len(offsets) - 1)):
        group = (*group, place)
        complete = buckets if not offsets[place] else (offsets[-1] - offsets[place]) // floats
        if complete > (ready[-1] if ready else 0):
            groups.append(group)
            ready.append(complete)
            group = ()
    if not groups:
        return [group], [buckets]
    groups[-1] += group  # variables without floats
    return groups, ready


def _bucket(start: int, stop: int, hosts: int) -> Bucket:
    size = stop - start
    cuts = [start + size * rank // hosts for rank in range(hosts + 1)]
    return Bucket(start, stop, _extra_bytes(size, hosts) <= ONE_ROUND_BYTES, tuple(pairwise(cuts)))


def _extra_bytes(size: int, hosts: int) -> int:
    """The bytes that a host sends more in one round, (H - 1) n, than in two, 2 n (H - 1) / H; none with two hosts."""
    return _FLOAT_BYTES * size * (hosts - 1) * (hosts - 2) // hosts
