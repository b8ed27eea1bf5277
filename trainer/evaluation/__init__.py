"""Figures of predictions that are exact at any number of events, on one host or on all of a job."""
