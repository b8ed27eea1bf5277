"""Statistics of a model's inputs over a sample of its table, and warnings about them."""
