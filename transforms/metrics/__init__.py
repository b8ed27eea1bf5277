"""Metrics of a process: their declarations, the counters and histograms that record them, and what a scrape reads; no I/O."""
