"""Compare the data that a run has trained with its current data. Pure.

Within a partition a fragment is identified by the content of the inputs' columns: labels may have come, events may have
been deleted, and the place of the file does not matter. A new fragment without counterpart is *added* and trained; a
trained one without counterpart is *lost*, which is refused or accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trainer.run.progress.identity import FragmentIdentity, RunIdentity


@dataclass(frozen=True)
class DataChanges:
    """The differences between a checkpoint's data and the current data; fragments by their keys, ``partition#position``.

    Attributes:
        now: the current key of each recorded fragment that still exists.
        added: new fragments of trained partitions.
        relabelled: current keys of fragments whose label's columns differ.
        retracted: current keys of fragments whose deleted events differ.
        accepted: texts about changed trained data that was accepted.
        refused: texts about changed trained data that was refused.
    """

    now: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    relabelled: frozenset[str] = frozenset()
    retracted: frozenset[str] = frozenset()
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """What a resumed run does about trained data that has changed; by default it is refused.

    Attributes:
        accept: continue without training it again.
        train_labels: train events again whose labels have changed, once per change. The labels as trained are recorded then.
    """

    accept: bool = False
    train_labels: bool = False


REFUSE_CHANGES = ChangePolicy()


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
    """Match the recorded fragments with the current ones, partition by partition.

    Args:
        trained: the partitions that any epoch has trained.
        trained_fragments: recorded keys of the fragments with trained events; None if events are not counted, and then
            every difference is refused.
        accept: accept changed values of trained events, which are matched by number and place.
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
        why = "an older release wrote the checkpoint" if trained_fragments is not None else "count_events is off"
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
    # If a trained fragment is replaced by one of another size, it is unknown which of the new events were trained.
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
    """The current fragment of each recorded one: equal in all, else in its inputs, else, if accepted, in its rows."""
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
