"""OR-Tools, in a process of its own: the search for a better assignment of a plan's shards to cores."""
