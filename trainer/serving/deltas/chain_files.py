"""Where the links of a chain are: in a local folder, or in a bucket.

==========================  ====================================================  ==================================
what                        folder                                                bucket
==========================  ====================================================  ==================================
the manifest of link 1      ``000001-delta/manifest.json``                        ``000001.json``
its other files             ``000001-delta/``                                     ``000001-HASH/``
rows for the next export    ``.rows-HASH/``                                       ``.rows-HASH/``
==========================  ====================================================  ==================================

HASH is the first 32 digits of the link's hash. A folder appears by one rename. In a bucket the manifest is written last, unless it exists: the name has the
number alone, so that one of several processes writes a link, and the hash in the name of its folder says which files belong to it. Folders without
a manifest are not read. A chain that was copied from one to the other is read as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.run_files import RunFiles
from trainer.errors import TornCheckpoint
from trainer.serving.deltas.chain import Link, check_chain
from trainer.serving.deltas.link_manifest import MANIFEST, LinkManifest, link_hash, link_name
from transforms.errors import NotFound
from warehouse.storage.locations import is_gcs, parse_gcs

#: A chain, or one of its links: a folder, or ``gs://bucket/path``.
ChainPlace = str | Path

#: A manifest, or the description of rows, has at most so many bytes.
MOST_DOCUMENT_BYTES = 64 << 20

_FOLDER = re.compile("([0-9]{6,9})-(full|delta)")
_OBJECT = re.compile("([0-9]{6,9})[.]json")
_FILES = re.compile("([0-9]{6,9})-([0-9a-f]{32})")
_HASH_DIGITS = 32
#: Manifests that are read from a bucket at the same time.
_READ_AT_ONCE = 16


@dataclass(frozen=True, slots=True, order=True)
class LinkPlace:
    """Where a link is in its chain: its number, and the path of its manifest."""

    number: int
    manifest: str

    @property
    def is_object(self) -> bool:
        """Whether the manifest is an object that is written once, and named by the number alone."""
        return "/" not in self.manifest

    @property
    def name(self) -> str:
        """The link, as far as it is known without its manifest."""
        return self.manifest.removesuffix(f"/{MANIFEST}").removesuffix(".json")


def open_chain(chain: ChainPlace) -> RunFiles:
    """The files of a chain."""
    if isinstance(chain, str) and is_gcs(chain):
        from trainer.checkpoints.bucket_run import BucketRun  # the client is loaded only for buckets

        return BucketRun(chain, "")
    return LocalRun(Path(chain))


def link_places(files: RunFiles) -> tuple[LinkPlace, ...]:
    """The links of a chain by number."""
    found = files.entries("")
    folders = [LinkPlace(int(match[1]), f"{name}/{MANIFEST}") for name in found.folders if (match := _FOLDER.fullmatch(name))]  # fmt: skip
    objects = [LinkPlace(int(match[1]), name) for name in found.sizes if (match := _OBJECT.fullmatch(name))]
    return tuple(sorted([*folders, *(one for one in objects if one.manifest == object_name(one.number))]))


def object_name(number: int) -> str:
    """The name of the manifest of a link in a bucket."""
    return f"{number:06d}.json"


def files_folder(number: int, link: str) -> str:
    """The folder of the files of a link in a bucket, by its hash."""
    return f"{number:06d}-{link[:_HASH_DIGITS]}"


def number_and_hash(folder: str) -> tuple[int, str] | None:
    """The number and the begin of the hash in the name of :func:`files_folder`; None for another name."""
    match = _FILES.fullmatch(folder)
    return None if match is None else (int(match[1]), match[2])


def state_folder(link: str) -> str:
    """The folder of the rows after the link with this hash."""
    return f"{STATES}{link[:_HASH_DIGITS]}"


#: The begin of the names of folders with rows for the next export.
STATES = ".rows-"


def read_link(files: RunFiles, place: LinkPlace) -> Link:
    """A link by its verified manifest; its other files are not read. Raises :class:`TornCheckpoint`."""
    data, where = files.read_small(place.manifest, MOST_DOCUMENT_BYTES), files.place(place.manifest)
    manifest, digest = LinkManifest.from_bytes(data, where), link_hash(data)
    if place.is_object:
        named, folder = object_name(manifest.number), files_folder(manifest.number, digest)
    else:
        named, folder = f"{link_name(manifest.number, manifest.kind)}/{MANIFEST}", place.name
    if named != place.manifest:
        raise TornCheckpoint(
            "a link must be in the place of its number and kind", where=where, value=place.manifest, allowed=named
        )
    return Link(files, folder, manifest, digest)


class ChainReader:
    """Reads the links of a chain, or the one link that a place is. What is written once is read once."""

    def __init__(self, chain: ChainPlace) -> None:
        parent, self._only = _split(chain)
        self._place, self.files = str(chain), open_chain(parent)
        self._read: dict[LinkPlace, Link] = {}

    @property
    def is_one_link(self) -> bool:
        """Whether the place is that of one link."""
        return bool(self._only)

    def places(self) -> tuple[LinkPlace, ...]:
        """The links that are there now, by number."""
        found = link_places(self.files)
        if not self._only:
            return found
        number = int(self._only.partition("-")[0])
        return tuple(one for one in found if one.number == number and (one.is_object or one.name == self._only))

    def links(self, places: Sequence[LinkPlace] | None = None) -> tuple[Link, ...]:
        """The links in these places, by default all that are there, oldest first.

        Raises :class:`TornCheckpoint` unless each link names the hash of the one before it, and :class:`NotFound` without a link.
        """
        places = self.places() if places is None else places
        lacking = [one for one in places if one not in self._read]
        known = dict(self._read)
        if self.files.is_remote and len(lacking) > 1:
            with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
                known |= zip(lacking, pool.map(lambda one: read_link(self.files, one), lacking), strict=True)
        else:
            known |= {one: read_link(self.files, one) for one in lacking}
        self._read = {one: known[one] for one in places if one.is_object}
        links = tuple(known[one] for one in places)
        if not links or (self._only and links[0].manifest.name != self._only):
            raise no_links(self._place)
        check_chain(links)
        return links

    def newest(self) -> Link | None:
        """The newest link, after those before it were read as by :meth:`links`; None for an empty chain."""
        places = self.places()
        return self.links(places)[-1] if places else None


def _split(chain: ChainPlace) -> tuple[ChainPlace, str]:
    """The chain, and the name of one link if that is its place."""
    if isinstance(chain, str) and is_gcs(chain):
        location = parse_gcs(chain)
        parent, _, name = location.name.rpartition("/")
        if parent and _FOLDER.fullmatch(name):
            return replace(location, name=parent).uri, name
        return chain, ""
    folder = Path(chain)
    return (folder.parent, folder.name) if _FOLDER.fullmatch(folder.name) else (folder, "")


def read_chain(chain: ChainPlace) -> tuple[Link, ...]:
    """The links of a chain, or the one link that the place is, oldest first. Raises as :meth:`ChainReader.links`."""
    return ChainReader(chain).links()


def no_links(chain: str) -> NotFound:
    """The error for a chain without links."""
    return NotFound(
        "a chain must hold a link", where=chain, next_step="headrace export full RUN --output FOLDER writes one"
    )
