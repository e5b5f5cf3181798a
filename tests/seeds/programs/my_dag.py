import stepwell
import subprocess

@stepwell.step(id="print_date")
def print_date(ctx):
    subprocess.run(["date"])

@stepwell.step(id="sleep")
def sleep_step(ctx):
    subprocess.run(["sleep", "5"])

@stepwell.step(id="templated")
def templated_step(ctx):
    # ... logic ...
    pass

@stepwell.workflow
def my_dag(ctx):
    # t1 runs first
    print_date(ctx)

    # t2 and t3 run concurrenty (conceptually)
    # In synchronous Python, this runs sequentially:
    sleep_step(ctx)
    templated_step(ctx)

    # To achieve parallel execution in Python, we would use asyncio
    # or a future framing where `step` returns a Promise/Future.
