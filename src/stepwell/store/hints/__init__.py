"""Hints that there may be something to claim, or that a run has ended: here, to other processes, and from them.

`wakeups` gives them, `listener` hears those of other processes for as long as something here waits.
Anything that must happen must not be here: a hint may be lost, and polling finds what it has missed.
"""
