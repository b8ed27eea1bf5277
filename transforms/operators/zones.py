"""Wall clocks of time zones. The changes of a zone's clock are part of the graph.

So a fingerprint covers the changes that were used: an update of the time zone data that does not change a zone keeps its
memos, and one that does makes new ones.
"""

from __future__ import annotations

import bisect
import datetime
import itertools
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from transforms.errors import InputError, TypeMismatch, nearest
from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import INT64_MAX, INT64_MIN, not_empty
from transforms.operators.times import SECOND_US
from transforms.types import ColumnType, Dense, DType

if TYPE_CHECKING:
    import zoneinfo

#: No zone has changes before the first; after the last, clocks stay unchanged.
FIRST_YEAR, LAST_YEAR = 1800, 2100
_OFFSET_MAX_SECS = 86_400
#: No clock changed twice within this many seconds, so one look per stride finds every change.
STRIDE_SECS = 6 * 86_400


@cache
def clock_changes(zone: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The past and future changes of the clock of an IANA ``zone``: (starts, offsets_secs).

    ``starts`` are seconds since the epoch, ascending; from ``starts[i]`` on the clock is ahead of UTC by
    ``offsets_secs[i + 1]``, and before the first by ``offsets_secs[0]``. From the package tzdata, so that every machine
    has the same. Raises :class:`InputError` for an unknown zone.
    """
    info = _zone(zone)
    looks = range(_seconds(FIRST_YEAR), _seconds(LAST_YEAR + 1) + STRIDE_SECS, STRIDE_SECS)
    starts: list[int] = []
    offsets = [_offset_secs(info, looks[0])]
    for before, after in itertools.pairwise(looks):
        offset = _offset_secs(info, after)
        if offset != offsets[-1]:
            starts.append(_changed_at(info, before, after))
            offsets.append(offset)
    return tuple(starts), tuple(offsets)


def _changed_at(info: zoneinfo.ZoneInfo, before: int, after: int) -> int:
    """The first second with another offset than ``before``, known to be at ``after`` or earlier."""
    candidates, old = range(before + 1, after + 1), _offset_secs(info, before)
    return candidates[bisect.bisect_left(candidates, True, key=lambda at: _offset_secs(info, at) != old)]


def _zone(zone: str) -> zoneinfo.ZoneInfo:
    import zoneinfo  # only few models need it and what it imports
    from importlib import resources

    data = resources.files("tzdata")
    known = data.joinpath("zones").read_text(encoding="utf-8").split()
    if zone not in known:
        raise InputError("unknown time zone", where="in_zone", value=zone, allowed=nearest(zone, known),
                         next_step="name a zone of the IANA database, such as Europe/Berlin")  # fmt: skip
    with data.joinpath("zoneinfo", *zone.split("/")).open("rb") as stored:
        return zoneinfo.ZoneInfo.from_file(stored, zone)


def _seconds(year: int) -> int:
    return int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp())


_EPOCH = datetime.datetime(1970, 1, 1)


def _offset_secs(info: zoneinfo.ZoneInfo, at_secs: int) -> int:
    local = info.fromutc((_EPOCH + datetime.timedelta(seconds=at_secs)).replace(tzinfo=info))
    return round((local.replace(tzinfo=None) - _EPOCH).total_seconds()) - at_secs


def _in_zone(time: int, *, zone: str, starts: Sequence[int], offsets_secs: Sequence[int]) -> int | None:
    passed = sum(start * SECOND_US <= time for start in starts)
    local = time + offsets_secs[passed] * SECOND_US
    return local if INT64_MIN <= local <= INT64_MAX else None


def _in_zone_type(types: Types, params: Params) -> ColumnType:
    starts, offsets = params["starts"], params["offsets_secs"]
    assert isinstance(starts, tuple)
    assert isinstance(offsets, tuple)
    if len(offsets) != len(starts) + 1:
        raise TypeMismatch("offsets must have one more entry than changes", value=(len(starts), len(offsets)),
                           next_step='write time.in_zone("Europe/Berlin"), which looks them up')  # fmt: skip
    return Dense(DType.TIMESTAMP)


def _ascending_seconds(value: Scalar) -> str:
    limit = INT64_MAX // SECOND_US
    good = isinstance(value, tuple) and all(a < b for a, b in itertools.pairwise((-limit, *value, limit)))
    return "" if good else "seconds since the epoch in ascending order"


def _offsets(value: Scalar) -> str:
    good = isinstance(value, tuple) and value and all(abs(offset) <= _OFFSET_MAX_SECS for offset in value)  # type: ignore[arg-type]
    return "" if good else "seconds ahead of UTC, at most a day"


IN_ZONE = Operator(
    name="in_zone",
    version=1,
    family="time",
    summary="The time that the wall clock of a zone shows, as a timestamp whose calendar fields are local. The zone's "
    "changes of the clock, up to 2100, are parameters that the method fills in.",
    args=(Arg("time", dense=frozenset({DType.TIMESTAMP})),),
    result=_in_zone_type,
    reference=_in_zone,
    kernel=Imported("transforms.kernels.times", "in_zone"),
    params=(
        Param("zone", str, check=not_empty, doc="the zone's name in the IANA database"),
        Param(
            "starts", tuple, check=_ascending_seconds, item=int, doc="when the clock changed, seconds since the epoch"
        ),
        Param(
            "offsets_secs",
            tuple,
            check=_offsets,
            item=int,
            doc="the offsets from UTC before, between and after the changes",
        ),
    ),
    cost_ns=10,
    lifts=True,
    twin=Imported("transforms.twins.times", "in_zone"),
    example=Example(
        'hr.timestamp("time").in_zone("Europe/Berlin").hour_of_day()',
        {"time": [1_763_717_486_123_456, 1_750_000_000_000_000, None]},
        [10, 17, None],
    ),
)

OPERATORS = (IN_ZONE,)
