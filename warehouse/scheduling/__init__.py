"""Decisions of the queues, without a database: states of tasks, fair shares, batches, capacity."""
