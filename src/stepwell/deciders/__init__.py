"""Event-sourced deciders: their inputs wait in a mailbox, are decided in order, and are committed with their effects.

Every input goes through `service`; `proposal` is the pure middle, from inputs to rows. Nothing here names a statement
or a driver.
"""
