"""Hybrid placement: hot rows in the memory that trains, cold ones on servers."""
