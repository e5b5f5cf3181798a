"""Moves from other libraries, with databases that these have made themselves."""
