"""Makes and rehearses a release: pins, artifacts with digests and a bill of materials, and a first hour from an index."""
