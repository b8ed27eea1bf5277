"""Before training: what of the data is left to train, and the plan of a job."""
