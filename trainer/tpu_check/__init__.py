"""Checks a model against TPU slices before one is paid for: lowers its training step and compiles it with the TPU compiler."""
