"""Headrace's own files in the home, the only ones that garbage collection deletes.

A file is recognized by its folder and the exact pattern of its name. All else in these folders (a user's file, a link, a pipe)
is kept and reported. :meth:`warehouse.storage.storage.Storage.delete` checks that a path is inside the home.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from warehouse.storage.layout import (
    ANALYSIS,
    ARTIFACTS,
    BATCH_SUFFIX,
    BATCHES,
    JOBS,
    LAKES,
    MEMOS,
    OVERLAYS,
    ROWS,
    ROWS_SUFFIX,
    SUFFIX,
)
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import ListedFile, is_inside

OwnKind = Literal[
    "memos",
    "job results",
    "artifacts",
    "overlays",
    "lake files",
    "analysis files",
    "contributions",
    "batch files",
    "rows by key",
    "unfinished writes",
]

_FOLDERS = (MEMOS, JOBS, ARTIFACTS, ANALYSIS, OVERLAYS, LAKES, BATCHES, ROWS)
#: A random id (of a lease or a job), and a digest.
_ID, _DIGEST = "[0-9a-f]{32}", "[0-9a-f]{64}"
#: The name of a memo file: fragment, lease or compaction, memos. Older releases left out the lease.
_MEMO = rf"[0-9a-f]{{16}}-(?:(?:compaction)?{_ID}-[0-9a-f]{{16}}|{_ID})\.{SUFFIX}"
#: The name of a file that ``headrace table append`` writes.
_LATE = "late-[0-9a-f]{24}"
#: Files that Beam and tf.Transform wrote for one partition, in releases that ran them.
_ACCUMULATED = r"(?:beam-temp-[^/]+/.+|(?:\d+|METADATA)-\d{5}-of-\d{5}(?:\.gz)?|MANIFEST)"
_SHAPES: tuple[tuple[OwnKind, re.Pattern[str]], ...] = (
    ("memos", re.compile(rf"{MEMOS}/(?:[^/]+/)+{_MEMO}")),
    ("overlays", re.compile(rf"{OVERLAYS}/(?:[^/]+/)+[0-9a-f]{{16}}-{_ID}\.{SUFFIX}")),
    (
        "lake files",
        re.compile(rf"{LAKES}/[^/]+/(?:origins/{_ID}-{_DIGEST}|data/(?:[^/]+/)+(?:{_ID}|{_LATE}))\.parquet"),
    ),
    ("artifacts", re.compile(rf"{ARTIFACTS}/{_DIGEST}\.arrow")),
    ("job results", re.compile(rf"{JOBS}/{_ID}-\d{{6,}}\.(?:json|arrow)")),
    ("analysis files", re.compile(rf"{ANALYSIS}/jobs/{_ID}/(?:done/{_DIGEST}\.json|{_DIGEST}/{_ACCUMULATED})")),
    ("batch files", re.compile(rf"{BATCHES}/[^/]+/{_DIGEST}\.{BATCH_SUFFIX}")),
    ("rows by key", re.compile(rf"{ROWS}/[^/]+/{_DIGEST}\.{ROWS_SUFFIX}")),
    ("contributions", re.compile(rf"{ANALYSIS}/(?:tft-[^/]+/{_DIGEST}\.json|sums-[^/]+/[0-9a-f]/{_DIGEST}\.arrow)")),
)
_UNFINISHED = re.compile(r"(?P<folder>.+/)\.(?P<name>[^/]+)\.[0-9a-f-]+\.tmp")


@dataclass(frozen=True, slots=True)
class HomeFiles:
    """Headrace's own files by kind, and the paths of others; all relative to the home."""

    own: Mapping[OwnKind, Sequence[ListedFile]]
    foreign: tuple[str, ...]


def kind_of(path: str) -> OwnKind | None:
    """The kind of the own file at a path relative to the home; None for other files."""
    if not is_inside(path):
        return None
    for kind, shape in _SHAPES:
        if shape.fullmatch(path):
            return kind
    unfinished = _UNFINISHED.fullmatch(path)
    if unfinished and kind_of(unfinished["folder"] + unfinished["name"]):
        return "unfinished writes"
    return None


def list_home(storage: Storage, folders: Sequence[str] = _FOLDERS) -> HomeFiles:
    """Every file in the folders of Headrace's own files, or in some of these; links are not followed."""
    own: dict[OwnKind, list[ListedFile]] = {kind: [] for kind in get_args(OwnKind)}
    foreign: list[str] = []
    for folder in folders:
        walked = storage.walk(folder)
        foreign += walked.others
        for file in walked.files:
            kind = kind_of(file.path)
            if kind is None:
                foreign.append(file.path)
            else:
                own[kind].append(file)
    return HomeFiles(own, tuple(sorted(foreign)))
