"""What a run does between its claim and its settlement: steps, waits, children, replays.

`turn` is one turn of a run, `journal` what it has recorded, `steps`, `wait` and `children` the calls that it makes.
Nothing here writes SQL or claims a task.
"""
