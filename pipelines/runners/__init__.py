"""Beam: runners and their options, how elements enter a job, how errors travel back, jobs on Dataflow."""
