"""Tables behind an embedding worker, as an engine: ids are sent, pooled activations come, and gradients of activations are sent."""
