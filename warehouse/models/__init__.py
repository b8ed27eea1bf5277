"""Submitted models, their components and their pinned analyses."""
