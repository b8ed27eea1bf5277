"""Execution plans: several components run over one batch, with fused operators and measured costs."""
