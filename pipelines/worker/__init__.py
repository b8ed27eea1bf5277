"""The worker: lease tasks, run a job, commit its results."""
