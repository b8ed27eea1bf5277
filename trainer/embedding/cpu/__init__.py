"""The embedding engine in the memory of one process: stacked tables, compiled loops, all cores."""
