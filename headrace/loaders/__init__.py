"""Batches for PyTorch, JAX and NumPy: `hr.torch`, `hr.jax` and `hr.batches`."""
