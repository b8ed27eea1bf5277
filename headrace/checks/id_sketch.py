"""Counts of ids: in 64 classes of their hash, which tell distributions apart; exactly for a sample of ids by hash, which tells which are new; and the most frequent.

The sample is bottom-k (Cohen, Kaplan: "Summarizing data using bottom-k sketches", PODC 2007): the ids of the least hashes, each with its exact count. Two samples
below one threshold hold the same ids, so an id of one that the other lacks is new.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from transforms.derived_documents import whole
from transforms.documents import Part

CLASSES = 64
#: The most ids of a sample.
SAMPLED = 256
#: The most frequent values that are kept.
TOP = 8
_HASHES = 1 << 62
_TEXT = 48


@dataclass(frozen=True, slots=True)
class IdSketch:
    """The distribution of ids.

    Attributes:
        classes: values by the class of their hash; empty without values.
        threshold: the sample has exactly the ids whose hash is below.
        sample: hashes of the sampled ids, ascending.
        counts: values of each sampled id.
        top: the most frequent values as text; of several sketches those of their own most frequent ones.
        top_counts: values of each of them.
    """

    classes: tuple[Annotated[int, whole(0)], ...] = ()
    threshold: Annotated[int, whole(0, _HASHES)] = _HASHES
    sample: tuple[Annotated[int, whole(0, _HASHES)], ...] = ()
    counts: tuple[Annotated[int, whole(1)], ...] = ()
    top: tuple[str, ...] = ()
    top_counts: tuple[Annotated[int, whole(1)], ...] = ()

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for members that contradict each other."""
        if len(self.classes) not in (0, CLASSES):
            raise part.at("classes").refused(f"{CLASSES} counts, or none")
        ascends = all(a < b for a, b in zip(self.sample, self.sample[1:], strict=False))
        if (
            len(self.sample) != len(self.counts)
            or len(self.sample) > SAMPLED
            or not ascends
            or (self.sample and self.sample[-1] >= self.threshold)
        ):
            raise part.at("sample").refused("ascending hashes below the threshold, one for each count")
        if len(self.top) != len(self.top_counts) or len(self.top) > TOP:
            raise part.at("top").refused(f"at most {TOP} values, one for each count")

    @property
    def values(self) -> int:
        """The number of values."""
        return sum(self.classes)

    @property
    def distinct(self) -> int:
        """The number of different ids: exact up to the size of the sample, else an estimate within about 6 %."""
        return len(self.sample) if self.threshold == _HASHES else round(len(self.sample) / (self.threshold / _HASHES))


def sketch_ids(values: pa.Array) -> IdSketch:
    """The distribution of an array of ids: integers, booleans or texts."""
    counted = pc.value_counts(values.drop_null())
    if not len(counted):
        return IdSketch()
    ids, counts = counted.field("values"), counted.field("counts").to_numpy()
    hashes = _hashes(ids)
    classes = np.zeros(CLASSES, np.int64)
    np.add.at(classes, (hashes % CLASSES).astype(np.int64), counts)
    order = np.argsort(hashes, kind="stable")
    frequent = np.argsort(-counts, kind="stable")[:TOP]
    kept = _sampled(hashes[order], counts[order], _HASHES)
    return IdSketch(
        tuple(classes.tolist()),
        *kept,
        tuple(_shown(ids[int(one)].as_py()) for one in frequent),
        tuple(counts[frequent].tolist()),
    )


def merged_ids(sketches: Sequence[IdSketch]) -> IdSketch:
    """The distribution of the values of all: that of one sketch of them, but for the most frequent values."""
    filled = [one for one in sketches if one.classes]
    if not filled:
        return IdSketch()
    threshold = min(one.threshold for one in filled)
    hashes = np.concatenate([np.asarray(one.sample, np.int64) for one in filled])
    counts = np.concatenate([np.asarray(one.counts, np.int64) for one in filled])
    distinct, places = np.unique(hashes, return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, places, counts)
    below = distinct < threshold
    frequent: dict[str, int] = {}
    for one in filled:
        for text, count in zip(one.top, one.top_counts, strict=True):
            frequent[text] = frequent.get(text, 0) + count
    top = sorted(frequent.items(), key=lambda one: -one[1])[:TOP]
    return IdSketch(
        tuple(np.sum([one.classes for one in filled], axis=0).tolist()),
        *_sampled(distinct[below], sums[below], threshold),
        tuple(text for text, _ in top),
        tuple(count for _, count in top),
    )


def new_share(before: IdSketch, now: IdSketch) -> tuple[float, float] | None:
    """The share of the values of ``now`` whose id ``before`` does not have, and its standard error; None without sampled values.

    Both samples are cut to the lower threshold. Without a cut the share is exact, and its error 0.
    """
    threshold = min(before.threshold, now.threshold)
    known = {one for one in before.sample if one < threshold}
    seen = [(one, count) for one, count in zip(now.sample, now.counts, strict=True) if one < threshold]
    total = sum(count for _, count in seen)
    if not total:
        return None
    share = sum(count for one, count in seen if one not in known) / total
    if threshold == _HASHES:
        return share, 0.0
    spread = sum((count * ((one not in known) - share)) ** 2 for one, count in seen)
    return share, math.sqrt(spread) / total


def _sampled(hashes: np.ndarray, counts: np.ndarray, threshold: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """The threshold and the sample of ids in the order of their hashes."""
    if len(hashes) > SAMPLED:
        threshold, hashes, counts = int(hashes[SAMPLED]), hashes[:SAMPLED], counts[:SAMPLED]
    return threshold, tuple(hashes.tolist()), tuple(counts.tolist())


def _hashes(ids: pa.Array) -> np.ndarray:
    """Hashes in [0, 2**62), which depend on the ids only."""
    if pa.types.is_integer(ids.type) or pa.types.is_boolean(ids.type):
        return _mixed(np.asarray(ids.cast(pa.int64())).astype(np.uint64))
    found = [
        xxhash.xxh3_64_intdigest(one.as_py().encode() if isinstance(one.as_py(), str) else bytes(one.as_py()))
        for one in ids
    ]
    return (np.array(found, np.uint64) >> np.uint64(2)).astype(np.int64)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64, of which two bits are dropped."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(2)).astype(np.int64)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
