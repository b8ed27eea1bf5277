"""What a job writes on shared storage: outcomes, partitions, files published all at once."""
