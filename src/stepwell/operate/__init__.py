"""Read models for people: what there is to see of a store, as plain values that a command or a page can show.

`run_view` and `instance` read a run and an instance of a decider and lay them out; `doctor` judges the store, `status`
says how it and its runs stand, `lookup` finds the run that a name means, `format` puts values into words.
Printing, colours and options must not be here (`cli`), nor SQL: a fact that no verb tells gets a verb (`store`).
"""
