"""Event-sourced deciders at work: inputs wait in a mailbox, are decided in turn and committed with effects.

`service` is the one way in; `proposal` is the pure middle: inputs to rows. Nothing here names a statement or a driver.
"""
