"""A training run's identity, lock, epochs and data changes."""
