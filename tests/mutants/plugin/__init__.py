"""What runs inside pytest beside a mutant."""
