"""The graphs of components: nodes, canonical form, encoding and fingerprint."""
