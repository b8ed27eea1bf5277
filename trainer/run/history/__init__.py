"""The metric history of a run: what each window of steps and each commit has measured, kept with the commits."""
