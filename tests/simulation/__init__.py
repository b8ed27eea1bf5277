"""Simulates the queue and its workers, with production's decisions, but without catalog, disk or clock.

It needs no catalog, disk or clock. Runs with equal arguments are equal, event by event.
"""
