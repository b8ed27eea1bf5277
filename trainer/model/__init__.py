"""The model that is trained: inputs, networks over activations, the dense train step, heads, metrics."""
