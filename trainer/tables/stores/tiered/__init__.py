"""Hot rows in the memory that trains, and cold ones in another store."""
