"""Plans of tables that follow the data: what an epoch has measured, when another plan pays, and what a job has changed."""
