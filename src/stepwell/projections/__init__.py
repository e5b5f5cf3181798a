"""Projections: read models that follow the events of deciders, in their order, each event once.

`projection` is what a class or function declares with `@projection`; `row_fold` keeps the rows of a function in a
table that is made of a `row_class`, and `row_query` reads them. `runner` is the loop that a worker drives: take the
projection, read its events up to the horizon, have them handled, move on. `beside` drives a build that is made anew
beside the live one, and swaps the two. How far each has come stands in the store.
SQL must not be here, nor a rule of deciders: events are read as their registry reads them.
"""
