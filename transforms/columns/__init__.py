"""Columns in the layout that kernels read: stored types, 32-bit positions and the one NaN."""
