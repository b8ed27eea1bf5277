"""Columnar files: memos, artifacts and changes, their formats and digests; files of batches."""
