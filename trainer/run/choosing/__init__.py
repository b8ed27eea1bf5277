"""The choice of training options from the data: rules, and a trial of candidates on slices of the newest events."""
