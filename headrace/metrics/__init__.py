"""Serves the metrics of a process to Prometheus: the endpoint, its targets, and the list of all metrics."""
