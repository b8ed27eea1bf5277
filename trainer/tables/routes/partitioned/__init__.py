"""Embedding tables spread by a plan over simulated cores, or over the hosts of a job."""
