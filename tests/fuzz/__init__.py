"""Mutated documents and files, read in child processes with limited memory; only errors of Headrace are allowed."""
