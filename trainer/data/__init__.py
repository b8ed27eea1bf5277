"""Training data: labels and their record, late events, and the ledger of trained events."""
