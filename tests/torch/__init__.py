"""Loaders for PyTorch and JAX in their own environment, ``.torch/``."""
