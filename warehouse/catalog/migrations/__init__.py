"""The catalog's schema, step by step. One file under ``versions`` for each step; they are never edited afterwards."""

#: The newest revision; a test compares it with what Alembic finds.
HEAD = "r0001"
