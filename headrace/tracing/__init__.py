"""Sends the spans of a process to a collector of OpenTelemetry."""
