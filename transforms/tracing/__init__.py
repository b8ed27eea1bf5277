"""Spans of a process, for traces: what it did, from when to when, and inside what; no I/O."""
