"""Trained models after training: prediction, evaluation and export, and deltas of their weights."""
