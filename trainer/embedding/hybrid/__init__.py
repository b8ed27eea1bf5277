"""Hybrid placement: hot rows in the accelerator's memory, cold ones on servers."""
