"""``headrace demo``: raw logs to a trained model, with the training killed in the middle."""
