"""The model that is trained: inputs, dense layers, heads, metrics."""
