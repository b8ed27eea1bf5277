"""Names of datasets and jobs in events of OpenLineage. Pure."""

from __future__ import annotations

from urllib.parse import quote

from warehouse.lineage.documents import Dataset

#: The column of a component's dataset.
VALUES = "values"
#: Source texts of changes that begin with a location of files.
_LOCAL = "file://"


def namespace_of(root: str) -> str:
    """The namespace of a warehouse: its home as a URI, without settings of the storage."""
    return root if "://" in root else f"{_LOCAL}{quote(root)}"


def component_name(table: str, fingerprint: str) -> str:
    """The dataset of a component's memos over a table."""
    return f"{table}/memos/{fingerprint}"


def run_folder_name(model: str, version: int) -> str:
    """The dataset of a model's checkpoints."""
    return f"models/{model}@{version}"


def source_dataset(source: str) -> tuple[Dataset, ...]:
    """What a table's change was read from, by the naming rules of OpenLineage: a folder, a bucket or a topic; none without a location."""
    place = source.partition("?")[0]
    scheme, found, rest = place.partition("://")
    if not found:
        return (Dataset("file", place),) if place.startswith("/") else ()
    if scheme == "file":
        return (Dataset("file", rest),)
    authority, _, path = rest.partition("/")
    return (Dataset(f"{scheme}://{authority.rpartition('@')[2]}", path or "/"),)
