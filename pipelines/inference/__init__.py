"""Inference of a schema file from a sample of a log by the parsing of an import, with notes on uncertain choices."""
