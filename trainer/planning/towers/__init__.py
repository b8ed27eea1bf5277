"""Towers of features: which embedding tables stand together on a host. Pure."""
