"""The schema of a table over time: columns that are added or widened, and equal values in files of other types."""
