"""Schema steps, in order."""
