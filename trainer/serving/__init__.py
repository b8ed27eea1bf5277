"""Trained models after training: prediction, evaluation and export."""
