"""The counts of :mod:`trainer.evaluation.rank_counts` over the events of all hosts of a job, whose scores do not fit one of them.

Hosts add up a histogram of the first 16 bits of their keys, which divides the range of scores among them; each host gets the keys of its range from
all others, and counts the pairs in it. The counts of ranges give those of all pairs. Results are equal on all hosts, and for any number of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from trainer.evaluation.ordered_keys import has_short_keys, ordered_keys
from trainer.evaluation.rank_counts import RankCounts, counts_of_keys, joined_counts
from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array

_PREFIX_BITS: Final = 16


def exchanged_counts(exchange: Exchange, is_positive: Array, scores: Array, *, threads: int = 0) -> RankCounts:
    """The counts of all pairs of the events of all hosts; each calls it with its own.

    Args:
        exchange: of the hosts.
        is_positive: bool [events] of this host.
        scores: [events] of this host, of one type on all hosts.
        threads: see :func:`~trainer.evaluation.rank_counts.rank_counts`.

    Raises the errors of :func:`~trainer.evaluation.ordered_keys.ordered_keys` and of the exchange.
    """
    is_short = bool(_from_all(exchange, np.array([has_short_keys(scores)], np.int64)).min())
    keys = ordered_keys(scores, is_short=is_short)
    shift = 8 * keys.itemsize - _PREFIX_BITS
    counted = np.bincount((keys >> keys.dtype.type(shift)).astype(np.int64), minlength=1 << _PREFIX_BITS)
    ends = _range_ends(_from_all(exchange, counted).sum(axis=0), exchange.hosts)
    received = exchange.all_to_all(_by_range(is_positive, keys, [end << shift for end in ends]))
    own = [np.concatenate([arrays[k] for arrays in received]) for k in range(2)]
    label = np.repeat([True, False], [len(one) for one in own])
    found = counts_of_keys(label, np.concatenate(own), threads=threads)
    sent = np.array([found.positives, found.negatives, found.twice_wins], np.int64)
    return joined_counts([RankCounts(*one) for one in _from_all(exchange, sent).tolist()])


def _range_ends(counted: Array, hosts: int) -> list[int]:
    """Where the range of each host but the last ends, as a prefix of keys: ranges have about equally many events."""
    before = np.cumsum(counted)
    wanted = before[-1] * np.arange(1, hosts) / hosts
    return [int(prefix) + 1 for prefix in np.searchsorted(before, wanted, side="left")]


def _by_range(is_positive: Array, keys: Array, ends: list[int]) -> list[list[Array]]:
    """For each range the keys of positives, and those of negatives."""
    found = []
    for own in (np.sort(keys[is_positive]), np.sort(keys[~is_positive])):
        cuts = [
            int(np.searchsorted(own, own.dtype.type(end))) if end < 1 << (8 * own.itemsize) else len(own)
            for end in ends
        ]
        found.append([own[first:stop] for first, stop in pairwise([0, *cuts, len(own)])])
    return [list(pair) for pair in zip(*found, strict=True)]


def _from_all(exchange: Exchange, values: Array) -> Array:
    """The values of all hosts, [hosts, values]."""
    received = exchange.all_to_all([[values]] * exchange.hosts)
    return np.stack([np.asarray(one) for (one,) in received])
