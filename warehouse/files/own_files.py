"""Which files of the home are Headrace's own: garbage collection deletes these and no others.

A file is known by the exact shape of the name that its writer gives it, in the folder that the writer uses. All else under
these folders (a person's file, a link, a pipe) is left, and reported. That a path leads nowhere outside the home is checked
where it is deleted, by :meth:`warehouse.storage.storage.Storage.delete`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from warehouse.storage.layout import ANALYSIS, ARTIFACTS, JOBS, MEMOS, OVERLAYS, SUFFIX
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile, is_inside

OwnKind = Literal[
    "memos", "job results", "artifacts", "overlays", "analysis files", "contributions", "unfinished writes"
]

_FOLDERS = (MEMOS, JOBS, ARTIFACTS, ANALYSIS, OVERLAYS)
#: A random identity (a lease, a job), and a digest.
_ID, _DIGEST = "[0-9a-f]{32}", "[0-9a-f]{64}"
#: Of a memo file: the fragment, the lease or the compaction, the memos. Releases before leases had names left out the lease.
_MEMO = rf"[0-9a-f]{{16}}-(?:(?:compaction)?{_ID}-[0-9a-f]{{16}}|{_ID})\.{SUFFIX}"
#: What Beam and tf.Transform wrote of one partition, in releases that ran them.
_ACCUMULATED = r"(?:beam-temp-[^/]+/.+|(?:\d+|METADATA)-\d{5}-of-\d{5}(?:\.gz)?|MANIFEST)"
_SHAPES: tuple[tuple[OwnKind, re.Pattern[str]], ...] = (
    ("memos", re.compile(rf"{MEMOS}/(?:[^/]+/)+{_MEMO}")),
    ("overlays", re.compile(rf"{OVERLAYS}/(?:[^/]+/)+[0-9a-f]{{16}}-{_ID}\.{SUFFIX}")),
    ("artifacts", re.compile(rf"{ARTIFACTS}/{_DIGEST}\.arrow")),
    ("job results", re.compile(rf"{JOBS}/{_ID}-\d{{6,}}\.json")),
    ("analysis files", re.compile(rf"{ANALYSIS}/jobs/{_ID}/(?:done/{_DIGEST}\.json|{_DIGEST}/{_ACCUMULATED})")),
    ("contributions", re.compile(rf"{ANALYSIS}/(?:tft-[^/]+/{_DIGEST}\.json|sums-[^/]+/[0-9a-f]/{_DIGEST}\.arrow)")),
)
_UNFINISHED = re.compile(r"(?P<folder>.+/)\.(?P<name>[^/]+)\.[0-9a-f-]+\.tmp")


@dataclass(frozen=True, slots=True)
class HomeFiles:
    """Files by kind, and paths that are not Headrace's own; all relative to the home."""

    own: Mapping[OwnKind, Sequence[ListedFile]]
    foreign: tuple[str, ...]


def kind_of(path: str) -> OwnKind | None:
    """The kind of Headrace's files that a path, relative to the home, is the name of; None: it is none of them."""
    if not is_inside(path):
        return None
    for kind, shape in _SHAPES:
        if shape.fullmatch(path):
            return kind
    unfinished = _UNFINISHED.fullmatch(path)
    if unfinished and kind_of(unfinished["folder"] + unfinished["name"]):
        return "unfinished writes"
    return None


def list_home(storage: Storage) -> HomeFiles:
    """Every file in the folders that garbage collection looks through; links are not followed."""
    own: dict[OwnKind, list[ListedFile]] = {kind: [] for kind in get_args(OwnKind)}
    foreign: list[str] = []
    for folder in _FOLDERS:
        walked = storage.walk(folder)
        foreign += walked.others
        for file in walked.files:
            kind = kind_of(file.path)
            if kind is None:
                foreign.append(file.path)
            else:
                own[kind].append(file)
    return HomeFiles(own, tuple(sorted(foreign)))
