"""Atomic checkpoints of a run: arrays, manifest, verification."""
