"""Shards of checkpoints that parameter servers write and read themselves: what they are asked for, and their files."""
