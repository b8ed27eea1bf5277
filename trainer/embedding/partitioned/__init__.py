"""Embedding tables whose rows are spread over simulated cores, or over the hosts of a job."""
