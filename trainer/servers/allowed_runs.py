"""Below which folders a server writes and reads shards of checkpoints: those that its own start names, whatever a client asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainer.checkpoints.host_part import PARTS
from trainer.checkpoints.run_files import CHECKPOINTS
from trainer.errors import ConfigError
from warehouse.storage.locations import is_gcs, parse_gcs

_NEXT = "start the server with --runs FOLDER, a folder that has the run"


@dataclass(frozen=True, slots=True)
class AllowedRuns:
    """The folders and prefixes of buckets that have the runs of a server.

    Attributes:
        roots: absolute paths, and ``gs://bucket/path`` with the settings of the object store.
    """

    roots: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for root in self.roots:
            if is_gcs(root):
                parse_gcs(root)
            elif not Path(root).is_absolute():
                raise ConfigError("a folder of runs must be an absolute path, or gs://bucket/path", where="--runs", value=root)  # fmt: skip

    def check(self, run: str) -> None:
        """Raise :class:`ConfigError` for a run directory that is not below a root, or whose parts are elsewhere by a symbolic link."""
        if not any(_is_below(run, root) for root in self.roots):
            raise ConfigError("a run must be below a folder that the server was started for", value=run[:200],
                              allowed=", ".join(self.roots) or "none", next_step=_NEXT)  # fmt: skip


#: Of a server that writes no shards.
NO_RUNS = AllowedRuns()


def allowed_runs(texts: Sequence[str]) -> AllowedRuns:
    """The roots of the texts of an option; relative paths are those of this process. Raises :class:`ConfigError`."""
    return AllowedRuns(tuple(text if is_gcs(text) else str(Path(text).absolute()) for text in texts))


def _is_below(run: str, root: str) -> bool:
    if is_gcs(run) or is_gcs(root):
        return is_gcs(run) and is_gcs(root) and _is_object_below(run, root)
    return _is_folder_below(run, root)


def _is_object_below(run: str, root: str) -> bool:
    """Whether a location has the bucket and the settings of the root, by which other hosts could be called, and a name below its name."""
    asked, allowed = parse_gcs(run), parse_gcs(root)
    names = [PurePosixPath(one.name) for one in (asked, allowed)]
    is_plain = not {"", ".", ".."} & set(asked.name.split("/"))
    return (
        (asked.bucket, asked.settings) == (allowed.bucket, allowed.settings)
        and is_plain
        and (names[1] == PurePosixPath(".") or names[0].is_relative_to(names[1]))
    )


def _is_folder_below(run: str, root: str) -> bool:
    path = Path(run)
    if "\0" in run or not path.is_absolute() or ".." in path.parts:
        return False
    resolved = path.resolve()
    parts = resolved / CHECKPOINTS / PARTS
    return resolved.is_relative_to(Path(root).resolve()) and parts.resolve() == parts
