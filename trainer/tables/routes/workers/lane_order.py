"""Which lane of a client a batch goes over: a pure decision on its number."""

from __future__ import annotations


def lane_of(number: int, lanes: int, held: int) -> int:
    """The lane of a batch: consecutive ones go over different lanes, all of which have equally many.

    Training sends the update of the batch ``held`` before a batch together with its lookup: these two go over different lanes, too, so that they are
    made at once. Without that a multiple of the lanes would leave all but one of them idle where lookups do not overlap.

    Args:
        number: of the batch, from 1 on.
        lanes: their number.
        held: the batches between a lookup and its update, the looked-up one included; at least 1.
    """
    shift = number // held if held % lanes == 0 else 0
    return (number + shift) % lanes
