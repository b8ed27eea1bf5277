"""The queue and its workers without a catalog, a disk or a clock: the decisions are those of production, the rest is made up.

Runs with the same arguments are the same run, event by event.
"""
