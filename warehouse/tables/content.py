"""The content of a fragment, as far as some columns show it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from warehouse.tables.table import Fragment


def content_digest(fragment: Fragment, columns: Sequence[str]) -> str:
    """SHA-256 of the values of some raw columns and of which events are deleted; neither the file nor its place matters."""
    deleted = "" if fragment.deletions is None else fragment.deletions.checksum
    document = [fragment.rows, [fragment.digests.get(name, "") for name in columns], deleted]
    return hashlib.sha256(json.dumps(document, separators=(",", ":")).encode()).hexdigest()
