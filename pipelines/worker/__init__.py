"""The worker: it leases tasks, computes them in a job and commits the results."""
