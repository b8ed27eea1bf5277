"""The counts of :mod:`trainer.evaluation.rank_counts` over the events of all hosts of a job, none of which has the scores of all.

Hosts add up a histogram of the first 16 bits of their keys, which divides the range of scores among them. Each host gets the keys of its range from
all others, and counts the pairs in it; a positive of a range wins over all negatives of lower ranges. Keys of many equal scores travel once, with
their number, so that no ties make a range large. The whole numbers are those of one process, on all hosts, for any number of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from trainer.errors import BadFeature
from trainer.evaluation.ordered_keys import has_short_keys, ordered_keys
from trainer.evaluation.rank_counts import CountedKeys, RankCounts, rank_counts, twice_wins
from trainer.evaluation.shared_arrays import gather_numbers, shuffled
from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array

_PREFIX_BITS: Final = 16


def exchanged_counts(exchange: Exchange, is_positive: Array, scores: Array, *, threads: int = 0) -> RankCounts:
    """The counts of all pairs of the events of all hosts; each calls it with its own.

    Args:
        exchange: of the hosts.
        is_positive: bool [events] of this host.
        scores: [events] of this host, floats on all hosts or integers on all.
        threads: see :func:`~trainer.evaluation.rank_counts.rank_counts`.

    Raises:
        BadFeature: on all hosts, for a score of any of them that is NaN.
        HostLost: if another host is lost.
    """
    if exchange.hosts == 1:
        return rank_counts(is_positive, scores, threads=threads)
    keys = _agreed_keys(exchange, scores)
    own = [CountedKeys.of_sorted(np.sort(keys[of_label])) for of_label in (is_positive, ~is_positive)]
    ends = _range_ends(gather_numbers(exchange, _histogram(own)).sum(axis=0), exchange.hosts)
    bits = 8 * keys.itemsize - _PREFIX_BITS
    cuts = [end << bits for end in ends]
    parts = [[*one, *other] for one, other in zip(*(_by_range(label, cuts) for label in own), strict=True)]
    arrays = shuffled(exchange, parts)
    positives, negatives = (_joined(*arrays[first : first + 3]) for first in (0, 3))
    wins = twice_wins(positives, negatives, threads=threads)
    return _carried(gather_numbers(exchange, [positives.events, negatives.events, wins]).tolist())


def _agreed_keys(exchange: Exchange, scores: Array) -> Array:
    """Keys of one width on all hosts."""
    values = np.asarray(scores)
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, bool)
    bad = int(missing.argmax()) if missing.any() else -1
    said = gather_numbers(exchange, [values.dtype.kind != "f" or has_short_keys(values), bad])
    for rank, event in enumerate(said[:, 1].tolist()):
        if event >= 0:
            raise BadFeature("a score must be a number, got NaN", where=f"host {rank}, event {event} of it", value="NaN",
                             next_step="score events with weights that are finite: headrace ckpt verify")  # fmt: skip
    return ordered_keys(values, is_short=bool(said[:, 0].min()))


def _histogram(labels: list[CountedKeys]) -> Array:
    """The keys that a host sends, by their first bits."""
    total = np.zeros(1 << _PREFIX_BITS, np.int64)
    for keys in labels:
        for one in (keys.each, keys.runs):
            assert one is not None
            prefixes = one >> one.dtype.type(8 * one.itemsize - _PREFIX_BITS)
            total += np.bincount(prefixes.astype(np.uint16), minlength=len(total))
    return total


def _range_ends(counted: Array, hosts: int) -> list[int]:
    """Where the range of each host but the last ends, as a prefix: ranges have about equally many keys."""
    before = np.cumsum(counted)
    wanted = before[-1] * np.arange(1, hosts) / hosts
    return [int(prefix) + 1 for prefix in np.searchsorted(before, wanted, side="left")]


def _by_range(keys: CountedKeys, cuts: list[int]) -> list[list[Array]]:
    """For each range the keys of single events, the other ones, and the events of these."""
    assert keys.runs is not None
    each, runs = (_parted(one, one, cuts) for one in (keys.each, keys.runs))
    return [list(arrays) for arrays in zip(each, runs, _parted(keys.run_counts, keys.runs, cuts), strict=True)]


def _parted(values: Array, keys: Array, cuts: list[int]) -> list[Array]:
    """The values of sorted keys below each of the cuts, and the rest."""
    most = int(np.iinfo(keys.dtype).max)
    places = [len(keys) if cut > most else int(np.searchsorted(keys, keys.dtype.type(cut))) for cut in cuts]
    return [values[first:stop] for first, stop in pairwise([0, *places, len(keys)])]


def _joined(each: list[Array], runs: list[Array], counts: list[Array]) -> CountedKeys:
    """The keys of one range from all hosts."""
    keys, events = np.concatenate(runs), np.concatenate(counts)
    order = np.argsort(keys, kind="stable")
    return CountedKeys(np.concatenate(each), keys[order], events[order])


def _carried(ranges: list[list[int]]) -> RankCounts:
    """The counts of all events from those of ascending ranges."""
    positives = negatives = wins = 0
    for own, other, won in ranges:
        wins += won + 2 * own * negatives
        positives, negatives = positives + own, negatives + other
    return RankCounts(positives, negatives, wins)
