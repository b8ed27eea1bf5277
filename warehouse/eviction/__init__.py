"""Eviction of memos, by query or down to a budget."""
