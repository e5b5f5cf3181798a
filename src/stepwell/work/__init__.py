"""The spine of a worker: claim, call, judge, settle; and beside it beat, recover, keep up.

`loop` claims, `execution` calls a body, `outcome` judges what came of it, and the store settles it. Nothing here knows
what is served: a handler, a workflow and a decider are all a `body`.
"""
