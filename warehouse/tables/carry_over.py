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


def carry_over(
    before: Iterable[PlacedFragment],
    file_digests: Mapping[str, Mapping[str, str]],
    read: Mapping[str, tuple[str, tuple[Fragment, ...]]],
) -> CarriedOver:
    """Give each fragment of ``read`` (path to partition and fragments) the overlays and deletions it had ``before``.

    An overlay belongs to the events of a fragment, in their order. So it is kept if the partition holds a fragment with the same
    content, also in another file, or with the same content and further columns, and dropped otherwise. The values of a further
    column go before an overlay of it, which is older.

    Args:
        before: the fragments that are read again, or gone.
        file_digests: the digests of the columns in the files of those with overlays, by ``fragment_id``.
        read: the fragments of the files that were read.
    """
    left: defaultdict[str, list[PlacedFragment]] = defaultdict(list)
    for placed in before:
        left[placed.partition].append(placed)
    fragments: dict[str, tuple[Fragment, ...]] = {}
    # Equal content first: it must not be taken by a fragment with further columns.
    for same in (True, False):
        for path, (partition, found) in read.items():
            here = fragments.get(path, found)
            fragments[path] = tuple(
                new if new is not old else _kept(old, left[partition], file_digests, same=same)
                for old, new in zip(found, here, strict=True)
            )
    lost = (placed for candidates in left.values() for placed in candidates)
    texts = (_lost_text(placed) for placed in sorted(lost, key=lambda one: (one.partition, one.position)))
    return CarriedOver(fragments, tuple(text for text in texts if text))


def _kept(
    fragment: Fragment, candidates: list[PlacedFragment], file_digests: Mapping[str, Mapping[str, str]], *, same: bool
) -> Fragment:
    def fits(placed: PlacedFragment) -> bool:
        if same:
            return placed.fragment.fragment_id == fragment.fragment_id
        stored = _stored(placed, file_digests)
        return bool(stored) and placed.fragment.rows == fragment.rows and fragment.digests.items() >= stored.items()

    fitting = [placed for placed in candidates if fits(placed)]
    if not fitting:
        return fragment
    chosen = next((one for one in fitting if one.fragment.path == fragment.path), fitting[0])
    candidates.remove(chosen)
    old = chosen.fragment
    if same:
        return replace(
            fragment, digests=old.digests, overlays=old.overlays, deletions=old.deletions, deleted_rows=old.deleted_rows
        )
    stored = _stored(chosen, file_digests)
    kept = [one for one in old.overlays if one.column in stored or one.column not in fragment.digests]
    digests = {**fragment.digests, **{one.column: old.digests[one.column] for one in kept}}
    return replace(
        fragment, digests=digests, overlays=tuple(kept), deletions=old.deletions, deleted_rows=old.deleted_rows
    )


def _stored(placed: PlacedFragment, file_digests: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """The digests of the columns in the fragment's file; not those of columns without values."""
    return file_digests.get(placed.fragment.fragment_id, placed.fragment.digests)


def _lost_text(placed: PlacedFragment) -> str:
    columns = [overlay.column for overlay in placed.fragment.overlays if not overlay.is_absent]
    parts = [f"overlays of {', '.join(columns)}"] if columns else []
    if placed.fragment.deletions is not None:
        parts.append(f"{placed.fragment.deleted_rows} deleted events")
    return f"{placed.fragment.path}: {' and '.join(parts)}" if parts else ""
