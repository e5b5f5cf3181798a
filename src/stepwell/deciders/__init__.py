"""Deciders at work: inputs wait in a mailbox, are decided in turn, and what that leads to is committed with them."""
