"""Tasks in the catalog: leased, committed, failed and counted, a transaction each."""
