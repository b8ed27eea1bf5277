"""Benchmarks whose figures README and docs quote; run one as ``python -m benchmarks.many_models`` in the root folder."""
