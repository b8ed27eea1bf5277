"""Columns that are joined from other tables, computed when what they see has changed, and published as overlays"""
