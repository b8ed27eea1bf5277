"""Quarantined tasks, the dead-letter queue: query, list, retry, drop."""
