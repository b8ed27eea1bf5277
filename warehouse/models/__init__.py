"""Submitted models in the catalog, with their components and pinned analyses."""
