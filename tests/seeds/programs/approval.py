from datetime import timedelta

from stepwell import Config, PauseError, connect_with

async def handler(ctx, params: Params) -> Output:
    # Send approval request
    await ctx.step("send_approval_request", lambda: email.send_approval_request(params.approver))

    # Pause until approval received
    def wait_for_approval():
        raise PauseError("Waiting for approval")

    approval_data = await ctx.step("wait_for_approval", wait_for_approval)

    # Process approval
    result = await ctx.step("process_approval", lambda: process(approval_data))

    return result

# Approval webhook arrives
async def approval_webhook(run_id: int, approval_data) -> None:
    store = get_store()

    # Options 1 and 2: the step gets the approval data, the run is claimable at once
    await store.resume(run_id, "wait_for_approval", approval_data)

# Global configuration
async def configured():
    config = Config(
        pause_check_interval=timedelta(hours=1),  # Default: check every hour
        visibility=timedelta(minutes=5),  # For crash recovery
    )
    store = await connect_with(config)
    return store
