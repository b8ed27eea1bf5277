"""Pure decisions on keeping: the cheapest plan by minimum cut, policies, cost rates."""
