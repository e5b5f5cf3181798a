"""An open database with verbs, and everything that writes or reads it.

`store` is the face, `database` what all verbs share, `flush` the group commit, `sql` the statements. What differs
between databases stands in `postgres`, `embedded` and `joins`. Nothing here calls user code or judges an outcome.
"""
