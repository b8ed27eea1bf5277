"""Simulates the queue and its workers, with production's decisions, but without catalog, disk or clock.

Runs with the same arguments are the same run, event by event.
"""
