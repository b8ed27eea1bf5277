"""Mutated documents and files, read in child processes of bounded memory: nothing but an error of Headrace may come of it."""
