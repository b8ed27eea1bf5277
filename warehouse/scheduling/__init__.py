"""Pure decisions of the queues: states of tasks, fair shares, batches, backoff, fleet size."""
