"""Training data: decoded fragments, batches, labels, late events, and the ledger of trained events."""
