"""Execution plans: components run together over one batch, with fused operators and measured costs."""
