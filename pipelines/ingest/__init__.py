"""The import job: log files to a partitioned Parquet table."""
