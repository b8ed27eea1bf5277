"""The queue in the catalog: tasks are leased, committed, failed and counted, in one transaction each; what it was minute by minute."""
