"""Graphs of components: nodes, how they are built, their canonical form, fingerprint and encoding."""
