"""Tasks in the catalog: each function leases, commits, fails or counts them in one transaction."""
