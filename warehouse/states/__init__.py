"""Files of states: the rows that online answers need, as a full link and deltas with tombstones"""
