"""Terminal output: grids, wrapping, units, progress lines, interruption."""
