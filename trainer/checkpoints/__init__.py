"""Atomic checkpoints: arrays, manifest, verification."""
