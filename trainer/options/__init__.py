"""Options of a training run, checked, and what goes with what."""
