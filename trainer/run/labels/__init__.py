"""Labels of events: their record, late and changed ones, and the events that fall due."""
