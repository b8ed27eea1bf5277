"""Blocks of lines read by compiled loops: flat JSON objects, and delimited records without quotes."""
