"""The differences between two components, and patterns that match components."""
