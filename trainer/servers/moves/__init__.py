"""Moves of tables from the parameter servers of a training to other ones, while it goes on: requests, what is copied when, and who has the rows."""
