"""The spine of a worker: claim, call, judge, settle; and beside it heartbeat, recovery and upkeep.

`loop` claims, `execution` calls a body, `outcome` judges the result, and the store settles it. Nothing here knows
what is served: a handler, a workflow and a decider are all a `body`.
"""
