"""Names of compressed files: which suffixes say so, and the name without them."""

from __future__ import annotations

#: What compressed files are usually called. Whether a file is compressed depends on its first bytes, not on its name.
COMPRESSED_SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd",
                       ".lz4": "lz4"}  # fmt: skip


def uncompressed_name(name: str) -> str:
    """``name`` without the suffix of a compressed file, in any case: ``log.tsv`` of ``log.tsv.GZ``."""
    suffix = _suffix(name)
    return name[: -len(suffix)] if suffix in COMPRESSED_SUFFIXES else name


def named_compression(name: str) -> str | None:
    """The compression that the suffix of ``name`` states; None for other suffixes."""
    return COMPRESSED_SUFFIXES.get(_suffix(name))


def _suffix(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f".{suffix.lower()}" if dot and stem else ""
