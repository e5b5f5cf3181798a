"""The command line: parse the words, call a verb of the store or a read model of `operate`, print, exit.

`main` lists the commands, `command` has what they share and the exit codes, `open` opens the store, `output` prints.
A command imports heavy modules when it is called, so that `--help` answers at once.
SQL and judgement must not be here: what a dashboard would need as well belongs in `operate`.
"""
