"""A schema file from a sample of a log: what it seems to be, and what that is unsure of."""
