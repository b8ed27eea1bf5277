"""The trained model: inputs, dense layers, heads, metrics."""
