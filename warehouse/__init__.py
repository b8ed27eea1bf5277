"""What is stored and what is known: tables, memos, the catalog, matching, queues."""
