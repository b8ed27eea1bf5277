"""Training jobs of several processes: launch, controller and hosts."""
