"""Libraries of the benchmarks: logs, fleets of models, catalogs, other systems, and the timing of sides."""
