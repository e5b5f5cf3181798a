"""The benchmark: raw SQL, stepwell and its peers, under the same workloads. `make bench`, or `python -m bench --help`.

The parent (`__main__`, `running`, `ground`, `peers`, `figures`, `telling`) makes databases and environments, starts one
process for every measurement, and tells what came of it. That process (`play`, `workloads` with `queue_work` and
`workflow_work`, `stage`, `asking`, `meter`, one file of `contestants`) runs in the contestant's own environment, so it
needs nothing but the standard library and that one.
"""
