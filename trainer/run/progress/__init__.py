"""How far a run is: identity, lock, epochs, ledger, held-out events, and changes of its data."""
