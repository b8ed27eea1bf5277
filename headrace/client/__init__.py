"""A warehouse in Python: `hr.open`, its methods, and the commands that they start."""
