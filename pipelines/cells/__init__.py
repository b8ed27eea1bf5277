"""Cells of a log: text to typed numbers, times and JSON values."""
