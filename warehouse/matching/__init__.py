"""Match models with the catalog: submit, queue missing memos, plan reads, explain decisions."""
