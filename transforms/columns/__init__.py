"""Columns in the one layout that kernels read: stored types, 32-bit positions, the one NaN."""
