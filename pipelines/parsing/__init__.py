"""Log files to typed rows: sources, blocks, encodings, delimited text, JSON lines, Parquet, rejects."""
