"""Output files of a job on shared storage: outcomes, partitions, files that are published all at once."""
