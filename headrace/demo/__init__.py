"""The demo: from raw logs to a trained model, with a training that is killed and resumed."""
