"""Towers of features: which embedding tables stand together on a host, and what that is worth. Pure."""
