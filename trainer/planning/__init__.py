"""Pure decisions about the placement of embedding tables' rows: statistics, topologies, costs, plans, placements and towers."""
