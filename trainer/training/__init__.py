"""The training loop and its saved state."""
