"""What a model's inputs look like over a sample of its table, and what is surprising about them."""
