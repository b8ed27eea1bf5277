"""Frames with checksums over TCP: what all own protocols between the processes of a job send."""
