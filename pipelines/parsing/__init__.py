"""Parsing of log files into typed rows: sources, encodings, delimited text, JSON lines, Parquet, rejects."""
