"""A trained model scored by several processes, of which each has a share of the tables and of the events."""
