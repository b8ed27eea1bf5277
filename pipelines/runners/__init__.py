"""Beam's runners: their options, the elements of a job, the errors of workers, jobs on Dataflow."""
