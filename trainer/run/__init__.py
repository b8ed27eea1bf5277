"""Runs of training: the loop, and what it reads, keeps and reports."""
