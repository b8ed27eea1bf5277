"""Terminal output: tables, wrapping, units, progress, and signals."""
