"""Pages of a warehouse and its trainings in a browser: see, search, evict, restore and release; rendered on the server."""
