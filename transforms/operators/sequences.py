"""Operators over a user's history: lists in the order of time.

``tail`` is the last n, ``age_secs`` over a list the time since each item. Differences are exact, however far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Scalar
from transforms.operators.signatures import always
from transforms.types import DType, Ragged

_KERNELS = "transforms.kernels.sequences"
_TWINS = "transforms.twins.sequences"
_TIMES = Arg("times", ragged=frozenset({DType.TIMESTAMP}))
_SECOND_US = 1_000_000
#: The longest gap between sessions: a hundred years.
_GAP_SECS_MAX = 3_155_760_000.0
_DEMO = {"times": [[0, 1_000_000, 3_500_000], [7_000_000], []]}


def gap_micros(gap_secs: float) -> int:
    """The gap in microseconds, as timestamps have them."""
    return round(gap_secs * _SECOND_US)


def _session_index(times: Sequence[int], *, gap_secs: float) -> list[int]:
    sessions = [0] * len(times)
    for i, (before, after) in enumerate(pairwise(times)):
        sessions[i + 1] = sessions[i] + (after - before > gap_micros(gap_secs))
    return sessions


def _gaps_secs(times: Sequence[int]) -> list[float]:
    return [0.0][: len(times)] + [float(after - before) / _SECOND_US for before, after in pairwise(times)]


def _gap(value: Scalar) -> str:
    return "" if isinstance(value, float) and 0 <= value <= _GAP_SECS_MAX else f"0 .. {_GAP_SECS_MAX:.0f} seconds"


SESSION_INDEX = Operator(
    name="session_index",
    version=1,
    family="sequences",
    summary="The session of each item, counted from 0: a new one begins where more than gap_secs passed since the item "
    "before. Time that goes back begins none.",
    args=(_TIMES,),
    result=always(Ragged(DType.INT64)),
    reference=_session_index,
    kernel=Imported(_KERNELS, "session_index"),
    params=(Param("gap_secs", float, check=_gap, doc="the longest pause within a session, to the microsecond"),),
    cost_ns=10,
    twin=Imported(_TWINS, "session_index"),
    example=Example('hr.ragged("times", "timestamp").session_index(gap_secs=2)', _DEMO, [[0, 0, 1], [0], []]),
)

GAPS_SECS = Operator(
    name="gaps_secs",
    version=1,
    family="sequences",
    summary="Seconds from the item before to each item, float64, negative where time goes back; 0 for the first item, so "
    "that the list keeps its length.",
    args=(_TIMES,),
    result=always(Ragged(DType.FLOAT64)),
    reference=_gaps_secs,
    kernel=Imported(_KERNELS, "gaps_secs"),
    cost_ns=10,
    twin=Imported(_TWINS, "gaps_secs"),
    example=Example('hr.ragged("times", "timestamp").gaps_secs()', _DEMO, [[0.0, 1.0, 2.5], [0.0], []]),
)

OPERATORS = (SESSION_INDEX, GAPS_SECS)
