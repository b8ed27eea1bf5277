"""Full-pass operators, their analyses and their replacement, and the label of a model."""
