"""Joined columns of this moment: rows that are pushed, and what an event sees of them"""
