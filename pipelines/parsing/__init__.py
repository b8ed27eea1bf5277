"""Parsing of log files into typed rows: sources, compression, encodings, delimited text, JSON lines, Parquet, rejects."""
