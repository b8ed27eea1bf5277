"""Memos in the catalog: their rows, coverage by column sets, and aliases of pending memos."""
