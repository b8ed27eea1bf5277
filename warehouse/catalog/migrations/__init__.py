"""Migrations of the catalog's schema, one file each under ``versions``; a released migration is never edited."""

#: The newest revision; a test compares it with what Alembic finds.
HEAD = "r0013"
