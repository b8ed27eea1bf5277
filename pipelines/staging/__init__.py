"""Files and packages that remote workers receive."""
