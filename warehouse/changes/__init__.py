"""Data that changes: late rows, overlaid and corrected columns, retracted events."""
