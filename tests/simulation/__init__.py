"""A simulation of the queue and its workers in virtual time, with the decisions of production.

It needs no catalog, disk or clock. Runs with equal arguments are equal, event by event.
"""
