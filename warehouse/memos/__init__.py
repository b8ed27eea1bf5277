"""Rows of memos, coverage by column sets, and aliases of content that is being computed."""
