"""Names of a SQLite catalog by prefix, for completion in a shell: without the database toolkit, whose import takes longer than the query."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final, Literal

Kind = Literal["model", "table", "component"]

#: The longest wait for a writer of the catalog: a person waits for the answer.
_BUSY_SECS: Final = 0.2
#: Follows every character of a name.
_LAST: Final = "\U0010ffff"
_QUERIES: Final[dict[Kind, str]] = {
    "model": "SELECT name FROM models WHERE live AND name >= ? AND name < ? ORDER BY name LIMIT ?",
    "table": "SELECT name FROM tables WHERE dropped_at IS NULL AND name >= ? AND name < ? ORDER BY name LIMIT ?",
    "component": "SELECT fingerprint FROM components WHERE fingerprint >= ? AND fingerprint < ? ORDER BY fingerprint LIMIT ?",
}


def stored_names(catalog: Path, kind: Kind, prefix: str, most: int) -> list[str]:
    """The first ``most`` names of live models, of tables or of components that begin with ``prefix``, ascending.

    ``catalog`` is only read, and not made. Raises :class:`sqlite3.Error` for a file that is no catalog or that a writer keeps.
    """
    connection = sqlite3.connect(f"{catalog.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECS)
    try:
        return [str(name) for (name,) in connection.execute(_QUERIES[kind], (prefix, prefix + _LAST, most))]
    finally:
        connection.close()
