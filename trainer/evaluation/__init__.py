"""Figures of predictions that are exact at any number of events, also inside groups of them."""
