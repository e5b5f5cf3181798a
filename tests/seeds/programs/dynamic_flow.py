@stepwell.workflow
def dynamic_flow(ctx, condition: bool):
    step_a(ctx)
    if condition:
        step_b(ctx)  # This step only exists in DB for this run if condition is True
    else:
        step_c(ctx)
