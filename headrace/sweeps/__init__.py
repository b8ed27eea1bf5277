"""Sweeps over training options: the space, its trials, and which of them go on. Pure, but for the files of a sweep."""
