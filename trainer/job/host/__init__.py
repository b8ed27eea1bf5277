"""A host of a training job: it follows the orders of the controller, and trains with the other hosts."""
