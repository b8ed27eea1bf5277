"""The feature language: expressions, their methods, and models."""
