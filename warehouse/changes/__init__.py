"""Data that changes: late rows, overlaid and corrected columns, deleted events, dropped tables."""
