"""Pure decisions about where the rows of embedding tables stand: statistics, topologies, costs, plans, placements and towers."""
