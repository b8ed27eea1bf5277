"""Encodings of ids and values on the wire between data loaders, embedding workers and parameter servers; no I/O."""
