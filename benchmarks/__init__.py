"""The measurements that README and docs quote: ``python -m benchmarks.many_models``, from the repository's root."""
