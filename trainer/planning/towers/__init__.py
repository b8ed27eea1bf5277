"""Towers of features: which embedding tables share a host, and how much time that saves. Pure."""
