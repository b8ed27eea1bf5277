"""Memo format 3, as ``docs/memo-format.md`` specifies it: from Arrow columns to bytes and back, no I/O but what is passed in."""
