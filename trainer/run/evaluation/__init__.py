"""What a trained model's figures say: verdicts with their uncertainty, and the health of its tables."""
