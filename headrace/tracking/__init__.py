"""Copies of a run's metric history for other tools: event files of TensorBoard, and runs of MLflow."""
