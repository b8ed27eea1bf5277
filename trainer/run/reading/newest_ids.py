"""The ids of sequences in a batch: the last ones of each event, the newest one first, and their number beside the dense numbers.

The order makes place 0 the newest one in every event, so an encoder finds it without a gather.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.model.sequence_layout import SequencePlace
from trainer.tables.batches import IdBatch
from transforms.arrays import Array


def newest_first(ids: IdBatch, sequences: Sequence[SequencePlace]) -> IdBatch:
    """A batch with the last ids of each sequence and of its gaps, the newest one first; other inputs as they are."""
    most = {f: one.options.length for one in sequences for f in one.inputs}
    taken, lengths = [], np.diff(ids.offsets, axis=1)
    for f, ends in enumerate(ids.offsets):
        if f in most:
            lengths[f] = np.minimum(lengths[f], most[f])
            taken.append(_newest(ends, lengths[f]))
        else:
            taken.append(np.arange(ends[0], ends[-1]))
    order = np.concatenate(taken)
    offsets = np.zeros_like(ids.offsets)
    offsets[:, 1:] = np.cumsum(lengths).reshape(lengths.shape)
    offsets[1:, 0] = offsets[:-1, -1]
    return IdBatch(ids.ids[order], offsets, None if ids.weights is None else ids.weights[order], ids.bounds)


def _newest(ends: Array, lengths: Array) -> Array:
    """The positions of the last ``lengths`` ids of each event, the last one first; ``ends``: where bags begin and end."""
    stops = np.cumsum(lengths)
    back = np.arange(int(stops[-1])) - np.repeat(stops - lengths, lengths)
    found: Array = np.repeat(ends[1:], lengths) - 1 - back
    return found


def sequence_lengths(ids: IdBatch, sequences: Sequence[SequencePlace]) -> Array:
    """The number of ids of each sequence that are taken of an event, float32 [events, sequences]."""
    lengths = [np.minimum(np.diff(ids.offsets[one.rows]), one.options.length) for one in sequences]
    return np.stack(lengths, axis=1).astype(np.float32)


def first_disagreement(ids: IdBatch, sequences: Sequence[SequencePlace]) -> tuple[SequencePlace, int] | None:
    """The first event with more or fewer gaps than ids of their sequence; None if there is none."""
    for one in sequences:
        if one.gaps is not None:
            wrong = np.flatnonzero(np.diff(ids.offsets[one.rows]) != np.diff(ids.offsets[one.gaps]))
            if len(wrong):
                return one, int(wrong[0])
    return None
