"""Batches in files: cut and packed once, read by later passes and by other runs of the same model."""
