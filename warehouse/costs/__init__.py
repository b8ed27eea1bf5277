"""Measured costs of computing and loading, and expected reuse."""
