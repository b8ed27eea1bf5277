"""Training data: batches, labels, late events, and the ledger of trained events."""
