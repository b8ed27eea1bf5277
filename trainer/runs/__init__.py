"""The identity of a training run, its lock, its epochs and changes of its data."""
