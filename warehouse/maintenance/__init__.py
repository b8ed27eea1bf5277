"""Garbage collection, compaction and verification of the warehouse."""
