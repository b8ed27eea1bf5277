"""The training loop, its saved state, and options chosen from the data."""
