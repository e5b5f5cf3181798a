"""Read models for people: what there is to see of a store, as plain values that a command or a page can show.

`look` reads a run or the whole store, `instance` an instance of a decider; `doctor` judges the store, `find` says which
run a name means; `timeline` and `graph` lay a run out; `status` and `words` have the words.
Printing, colours and options must not be here (`cli`), nor SQL: a fact that no verb tells gets a verb (`store`).
"""
