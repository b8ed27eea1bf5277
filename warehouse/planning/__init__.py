"""Pure decisions on memos: admission policies, the cheapest plan by minimum cut, rates and prices."""
