"""The memoize job: a Beam pipeline over fragments, and the delivery of its results to the worker."""
