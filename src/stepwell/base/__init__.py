"""Leaves: durations, names, clock, backoff, telemetry. Plain values and functions that every other package may use.

Nothing here knows a database, a task or a run, and nothing here imports another package of stepwell except `errors`
and `records`.
"""
