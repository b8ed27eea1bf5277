"""Training data: labels, late events, and the ledger of trained events."""
