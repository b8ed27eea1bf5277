"""Pages of a warehouse in a browser: see, search, evict and restore; rendered on the server."""
