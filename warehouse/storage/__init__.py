"""Stored bytes: atomic files on a local disk and objects in a bucket."""
