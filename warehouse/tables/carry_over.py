"""Carrying overlays and deletions over to re-registered files. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import Fragment


@dataclass(frozen=True)
class CarriedOver:
    """The fragments of files that were read again, by path, with the overlays and deletions that still apply.

    ``dropped``: those that no longer apply, one text per fragment: file, columns and deleted events.
    """

    fragments: Mapping[str, tuple[Fragment, ...]]
    dropped: tuple[str, ...]


def carry_over(before: Iterable[PlacedFragment], read: Mapping[str, tuple[str, tuple[Fragment, ...]]]) -> CarriedOver:
    """Give each fragment of ``read`` (path to partition and fragments) the overlays and deletions it had ``before``.

    An overlay belongs to the events of a fragment, in their order. So it is kept if the partition holds a fragment with the same
    content, also in another file, and dropped otherwise.
    """
    left: defaultdict[tuple[str, str], list[PlacedFragment]] = defaultdict(list)
    for placed in before:
        left[placed.partition, placed.fragment.fragment_id].append(placed)
    fragments: dict[str, tuple[Fragment, ...]] = {}
    for path, (partition, found) in read.items():
        fragments[path] = tuple(_kept(fragment, left[partition, fragment.fragment_id]) for fragment in found)
    lost = (placed for candidates in left.values() for placed in candidates)
    texts = (_lost_text(placed) for placed in sorted(lost, key=lambda one: (one.partition, one.position)))
    return CarriedOver(fragments, tuple(text for text in texts if text))


def _kept(fragment: Fragment, candidates: list[PlacedFragment]) -> Fragment:
    if not candidates:
        return fragment
    chosen = next((one for one in candidates if one.fragment.path == fragment.path), candidates[0])
    candidates.remove(chosen)
    old = chosen.fragment
    return replace(fragment, digests=old.digests, overlays=old.overlays, deletions=old.deletions,
                   deleted_rows=old.deleted_rows)  # fmt: skip


def _lost_text(placed: PlacedFragment) -> str:
    columns = [overlay.column for overlay in placed.fragment.overlays if not overlay.is_absent]
    parts = [f"overlays of {', '.join(columns)}"] if columns else []
    if placed.fragment.deletions is not None:
        parts.append(f"{placed.fragment.deleted_rows} deleted events")
    return f"{placed.fragment.path}: {' and '.join(parts)}" if parts else ""
