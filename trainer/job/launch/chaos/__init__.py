"""Seeded random faults in the processes of a training job, and the proof that each event was trained exactly once."""
