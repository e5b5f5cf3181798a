"""`stepwell demo`: a shop whose worker is killed at the worst moment, told as a story in the terminal.

`shop` is the application, `service` its outside world, `processes` its worker processes, `story` what happens to them.
Anything that another command needs must not be here: the demo uses stepwell as its users do.
"""
