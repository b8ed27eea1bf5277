"""Small logs for single tests."""

from __future__ import annotations

import gzip
from pathlib import Path

from pipelines.log_schemas.schema import LogSchema

COLUMNS = [
    {"name": "user", "type": "int64", "required": True},
    {"name": "query", "type": "string"},
    {"name": "price", "type": "float32"},
    {"name": "tags", "type": "string", "separator": "|"},
    {"name": "time", "type": "timestamp"},
]
HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def log_schema(log_format: str = "tsv", **more: object) -> LogSchema:
    document = {"format": log_format, "columns": COLUMNS, "time": {"column": "time", "unit": "ms"}, **more}
    return LogSchema.from_document(document)


def tsv_line(user: object, hour: float, query: str = "red shoes", price: str = "1.5", tags: str = "a|b") -> str:
    return f"{user}\t{query}\t{price}\t{tags}\t{int(START_MS + hour * HOUR_MS)}\n"


def write_log(path: Path, text: str | bytes) -> str:
    content = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return str(path)
