"""Inference of a schema file from a sample of a log, with notes on uncertain choices."""
