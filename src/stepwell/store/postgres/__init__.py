"""Postgres, through asyncpg: the only package that knows it.

`driver` answers calls, `connection` opens and drops connections, `compose` makes one statement of a flush, `listener`
hears NOTIFY. What it does must not differ from the embedded databases, only how; verbs must not be here.
"""
