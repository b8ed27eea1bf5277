"""Full passes as models name them, and a model's label: what must be known before a graph is complete."""
