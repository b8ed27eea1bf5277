"""From a read solution to batches: columns of fragments, stacked into the arrays of optimizer steps."""
