"""Runs of training as values: what a run is, its metric history, its curves, and how two runs differ."""
