"""Projections: read models that follow the events of deciders, in their order, each event once.

`projection` is what a class declares with `@projection`. `runner` is the loop that a worker drives: take the
projection, read its events up to the horizon, have them handled, move on. How far each has come stands in the store.
SQL must not be here, nor a rule of deciders: events are read as their registry reads them.
"""
