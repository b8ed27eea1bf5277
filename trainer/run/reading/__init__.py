"""From a read solution to batches: columns of fragments or units of readers, stacked into the arrays of optimizer steps."""
