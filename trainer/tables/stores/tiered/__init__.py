"""Hot rows in the memory that trains, and all rows in another store, such as servers."""
