"""Eviction of memos, by conditions or down to a budget, and its undoing."""
