"""Garbage collection, compaction and verification of a warehouse."""
