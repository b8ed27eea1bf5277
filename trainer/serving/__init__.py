"""Trained models after training: scoring and export."""
