"""Measured costs of computing and storing columns, and their expected requests."""
