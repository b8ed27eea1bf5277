"""The links of a chain, and what of them is applied to a state. The decisions are pure.

The links of a chain have consecutive numbers; the oldest may be removed up to a full snapshot, from which the rest is replayed. Where they are:
:mod:`trainer.serving.deltas.chain_files`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer.checkpoints.run_files import RunFiles
from trainer.errors import LinkRefused, MissingLink, TornCheckpoint
from trainer.serving.deltas.link_manifest import FULL, LinkManifest


@dataclass(frozen=True, slots=True)
class Link:
    """A link.

    Attributes:
        files: of its chain.
        folder: in ``files``, with the files of the link.
        manifest: which is verified.
        hash: of the link.
    """

    files: RunFiles = field(repr=False, compare=False)
    folder: str
    manifest: LinkManifest
    hash: str

    @property
    def place(self) -> str:
        """Its folder as errors show it."""
        return self.files.place(self.folder)


@dataclass(frozen=True, slots=True)
class Position:
    """What a state holds.

    Attributes:
        model: the digest of its model.
        epochs, commit: of the commit with its weights, the latter a SHA-256.
        number, hash: of the last link that was applied; -1 and "" for a state that was made from the commit itself.
    """

    model: str
    epochs: int
    commit: str
    number: int = -1
    hash: str = ""


def check_chain(links: Sequence[Link]) -> None:
    """Raises :class:`TornCheckpoint` unless the links follow each other and have one model."""
    for before, link in itertools.pairwise(links):
        own, theirs = link.manifest, before.manifest
        if own.number != theirs.number + 1 or own.previous != before.hash:
            raise TornCheckpoint("a link must name the hash of the link before it, got another", where=link.place,
                                 value=f"{own.number - 1}, {own.previous[:12]}", allowed=f"{theirs.number}, {before.hash[:12]}",
                                 next_step="copy the chain again from where it was exported, or export a full snapshot to a new folder")  # fmt: skip
        if own.model != theirs.model or (own.since is not None and own.since != theirs.commit):
            raise TornCheckpoint(
                "a link must go on from the commit and the model of the link before it", where=link.place
            )
        if own.kind != FULL and [(one.kind, one.table, one.columns) for one in own.tables] != [
            (one.kind, one.table, one.columns) for one in theirs.tables
        ]:
            raise TornCheckpoint("a delta must have the tables of the link before it, got others", where=link.place)


def links_to_apply(links: Sequence[Link], at: Position | None, where: str) -> tuple[Link, ...]:
    """The links that bring a state to the end of a chain, oldest first; none if it is there.

    Args:
        links: consecutive links that :func:`check_chain` accepts.
        at: what the state holds; None for no state yet.
        where: names the state in errors.

    Raises :class:`LinkRefused` for links of another chain or model and older links, and :class:`MissingLink` for a gap before the first one.
    """
    if at is None:
        return _from_newest_full(links, where, "a new state must begin with a full snapshot, got none")
    if at.model != links[-1].manifest.model:
        raise LinkRefused("a link must have the model of the state, got another model", where=where, value=links[-1].manifest.model[:12],
                          allowed=at.model[:12], next_step="apply the links of the run that the state was made from")  # fmt: skip
    return _after_link(links, at, where) if at.hash else _after_commit(links, at, where)


def _after_link(links: Sequence[Link], at: Position, where: str) -> tuple[Link, ...]:
    first, last = links[0].manifest, links[-1].manifest
    if at.number > last.number:
        raise _older(f"link {last.number}", f"link {at.number}", where)
    if at.number >= first.number:
        same = links[at.number - first.number]
        _check_same(same.hash, at, where)
        return _shortest(links[at.number - first.number + 1 :])
    if at.number == first.number - 1:
        _check_same(first.previous, at, where)
        return _shortest(links)
    return _from_newest_full(links, where, f"links must follow the state, which is at link {at.number}, got a gap")


def _check_same(found: str, at: Position, where: str) -> None:
    if found != at.hash:
        raise LinkRefused(f"link {at.number} of a chain must be the one that was applied to the state, got one of another chain", where=where,
                          value=found[:12], allowed=at.hash[:12],
                          next_step="apply the chain that the state was made from, or make the state again: from a full snapshot, or headrace model export")  # fmt: skip


def _after_commit(links: Sequence[Link], at: Position, where: str) -> tuple[Link, ...]:
    """The links after a state that was made from a commit itself, with every bit of its weights."""
    if links[-1].manifest.commit.epochs < at.epochs:
        raise _older(f"{links[-1].manifest.commit.epochs} epochs", f"{at.epochs} epochs", where)
    for k, link in enumerate(links):
        since = link.manifest.since
        if since is not None and since.sha256 == at.commit and _is_exact(links[:k]):
            return _shortest(links[k:])
    if links[-1].manifest.commit.sha256 == at.commit and _is_exact(links):
        return ()
    return _from_newest_full(links, where, "a chain must have a link from the commit of the state, got none")


def _is_exact(links: Sequence[Link]) -> bool:
    """Whether the state after these links has every bit of the last one's commit."""
    start = max((k for k, one in enumerate(links) if one.manifest.kind == FULL), default=0)
    return all(one.manifest.is_exact for one in links[start:])


def _shortest(links: Sequence[Link]) -> tuple[Link, ...]:
    """The links from the newest full snapshot among them on, or all."""
    start = max((k for k, one in enumerate(links) if one.manifest.kind == FULL), default=0)
    return tuple(links[start:])


def _from_newest_full(links: Sequence[Link], where: str, rule: str) -> tuple[Link, ...]:
    if not any(one.manifest.kind == FULL for one in links):
        raise MissingLink(rule, where=where, value=", ".join(one.manifest.name for one in links[:4]), allowed="a full snapshot",
                          next_step="headrace export full RUN --output FOLDER adds one to the chain")  # fmt: skip
    return _shortest(links)


def _older(found: str, has: str, where: str) -> LinkRefused:
    return LinkRefused("a link must be newer than the state, got an older one", where=where, value=f"up to {found}", allowed=f"after {has}",
                       next_step="nothing was changed; copy the newer links and apply them")  # fmt: skip


def links_until(links: Sequence[Link], number: int) -> tuple[Link, ...]:
    """The links up to a number. Raises :class:`LinkRefused` if none has it."""
    chosen = tuple(one for one in links if one.manifest.number <= number)
    if not chosen or chosen[-1].manifest.number != number:
        raise LinkRefused("a link must be one of the chain", where="--until", value=number,
                          allowed=f"{links[0].manifest.number} to {links[-1].manifest.number}")  # fmt: skip
    return chosen
