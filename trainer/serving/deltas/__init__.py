"""Full snapshots and deltas of the served weights of a run, as a chain of links."""
