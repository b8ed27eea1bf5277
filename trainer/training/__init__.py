"""The training loop, its saved state, and the choice of options from the data."""
