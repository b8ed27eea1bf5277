"""Memo format 3 (``docs/memo-format.md``): Arrow columns to bytes and back."""
