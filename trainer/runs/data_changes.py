"""What differs between the data that a run has trained and the data that it is given now. Pure.

Within a partition a fragment is the one that it was when the columns of the inputs hold what they held: labels may have
come, events may have been retracted, and where the file lies makes no difference. What has no counterpart is *added*
data, which is trained, or trained data that was *lost*, which is refused or accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trainer.runs.identity import FragmentIdentity, RunIdentity


@dataclass(frozen=True)
class DataChanges:
    """How the data of a checkpoint and the data at hand fit each other; fragments by their keys, ``partition#position``.

    Attributes:
        now: the key that each recorded fragment has now; those that are gone are left out.
        added: fragments that came into partitions which were trained.
        relabelled: fragments, as they are named now, whose label's columns differ.
        retracted: fragments, as they are named now, of which other events are retracted than before.
        accepted: what of trained data differs and was accepted.
        refused: what of trained data differs and must not.
    """

    now: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    relabelled: frozenset[str] = frozenset()
    retracted: frozenset[str] = frozenset()
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def fragment_key(partition: str, position: int) -> str:
    """The name of a fragment's place."""
    return f"{partition}#{position}"


def compare_data(
    recorded: RunIdentity,
    current: RunIdentity,
    *,
    trained: Collection[str],
    trained_fragments: Collection[str] | None,
    accept: bool = False,
) -> DataChanges:
    """Match what was recorded with what there is, partition by partition.

    ``trained``: the partitions that some epoch has seen. ``trained_fragments``: the fragments of which some event was
    trained, by their recorded keys; None where events are not counted, and then every difference counts. With ``accept``,
    changed values of trained events are let be: their events are found by their number and place.
    """
    parts = [
        _compare_partition(key, recorded, current, key in trained, trained_fragments, accept)
        for key in recorded.partitions
    ]
    return DataChanges(
        now={old: new for part in parts for old, new in part.now.items()},
        added=frozenset().union(*(part.added for part in parts)),
        relabelled=frozenset().union(*(part.relabelled for part in parts)),
        retracted=frozenset().union(*(part.retracted for part in parts)),
        accepted=tuple(line for part in parts for line in part.accepted),
        refused=tuple(line for part in parts for line in part.refused),
    )


def _compare_partition(
    key: str,
    recorded: RunIdentity,
    current: RunIdentity,
    seen: bool,
    trained_fragments: Collection[str] | None,
    accept: bool,
) -> DataChanges:
    before, after = recorded.fragments.get(key), current.fragments.get(key, ())
    if key not in current.partitions:
        line = (f"partition {key} is gone",)
        return DataChanges(accepted=line) if accept else DataChanges(refused=line)
    if recorded.partitions[key] == current.partitions[key]:
        places = [fragment_key(key, k) for k in range(len(after))]
        return DataChanges(now=dict(zip(places, places, strict=True)))
    if not seen:
        return DataChanges()
    if before is None or trained_fragments is None:
        why = "the checkpoint is of an older release" if trained_fragments is not None else "count_events is off"
        return DataChanges(refused=(f"partition {key} has other content than when it was trained, and {why}: which of "
                                    "its events were trained is unknown",))  # fmt: skip
    return _compare_fragments(key, before, after, trained_fragments, accept)


def _compare_fragments(
    key: str,
    before: tuple[FragmentIdentity, ...],
    after: tuple[FragmentIdentity, ...],
    trained_fragments: Collection[str],
    accept: bool,
) -> DataChanges:
    found = _matched(before, after, accept)
    lost = [k for k in range(len(before)) if k not in found and fragment_key(key, k) in trained_fragments]
    added = sorted(set(range(len(after))) - set(found.values()))
    changed = [k for k, new in found.items() if before[k].inputs != after[new].inputs]
    lines = [f"partition {key}: the inputs' values of fragment {k} ({before[k].rows:,} rows) differ" for k in changed]
    lines += [f"partition {key}: fragment {k} ({before[k].rows:,} rows) is gone or has other content" for k in lost]
    # Which of the new events were trained cannot be said where a trained fragment became one of another size.
    indistinct = bool(lost and added)
    return DataChanges(
        now={fragment_key(key, old): fragment_key(key, new) for old, new in found.items()},
        added=frozenset(fragment_key(key, new) for new in added),
        relabelled=frozenset(fragment_key(key, n) for o, n in found.items() if before[o].label != after[n].label),
        retracted=frozenset(fragment_key(key, n) for o, n in found.items() if before[o].deleted != after[n].deleted),
        accepted=tuple(lines) if accept and not indistinct else (),
        refused=tuple(lines) if not accept or indistinct else (),
    )


def _matched(before: tuple[FragmentIdentity, ...], after: tuple[FragmentIdentity, ...], accept: bool) -> dict[int, int]:
    """Which fragment each one is now: the same in all, else in its inputs, else, if accepted, in its number of rows."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    ways = (lambda one: one, lambda one: (one.rows, one.inputs), lambda one: one.rows)
    for way in ways if accept else ways[:2]:
        free: dict[object, list[int]] = {}
        for k in reversed(range(len(after))):
            if k not in taken:
                free.setdefault(way(after[k]), []).append(k)
        for k, one in enumerate(before):
            if k not in found and free.get(way(one)):
                found[k] = free[way(one)].pop()
                taken.add(found[k])
    return found
