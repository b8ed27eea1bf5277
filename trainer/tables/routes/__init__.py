"""Routes from a batch to the rows of its ids: this process, cores, hosts, towers, servers and workers."""
