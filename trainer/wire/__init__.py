"""Bytes between processes: frames with checksums over TCP, and Arrow Flight."""
