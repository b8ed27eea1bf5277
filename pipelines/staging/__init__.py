"""Packages and options that install Headrace on remote workers."""
