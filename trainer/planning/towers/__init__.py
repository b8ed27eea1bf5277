"""Towers of features: which embedding tables share a host. Pure."""
