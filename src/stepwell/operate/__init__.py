"""Read models for people: what there is to see of a store, as plain values that a command or a page can show.

`run_view`, `overview` and `instance` read a run, the whole store and an instance of a decider; `doctor` judges the
store, `lookup` finds the run that a name means; `timeline` and `graph` lay a run out, `status` and `format` word it.
Printing, colours and options must not be here (`cli`), nor SQL: a fact that no verb tells gets a verb (`store`).
"""
