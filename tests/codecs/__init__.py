"""Codecs: what is written, by which name, and who can read it."""
