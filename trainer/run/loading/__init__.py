"""Batches for trainers of other frameworks: shares of a stream, and the state of what was handed out."""
