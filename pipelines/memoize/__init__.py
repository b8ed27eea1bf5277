"""The memoize job: one Beam pipeline over fragments, and its results on their way to the commit."""
