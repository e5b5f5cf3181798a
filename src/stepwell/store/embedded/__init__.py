"""Databases in a file of this host or in memory: SQLite and Turso, each known by one file.

`driver` is what they have in common: one `thread` that writes, another that reads. `file` has the locks between
processes, `render` spells statements as both take them. Verbs must not be here, nor what only Postgres needs.
"""
