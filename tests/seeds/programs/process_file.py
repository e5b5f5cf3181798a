from dataclasses import dataclass

from stepwell import RunStatus, admin, connect, consumer, workflow

# === Data Types ===

@dataclass
class ProcessFileParams:
    bucket: str
    key: str

@dataclass
class ProcessFileResult:
    processed_key: str
    size_bytes: int

# === Workflow Handler ===

async def process_file_handler(ctx, params: ProcessFileParams) -> ProcessFileResult:
    # Step 1: Download file
    file_data = await ctx.step("download", lambda: s3.download(params.bucket, params.key))

    # Step 2: Process (e.g., resize image)
    processed_data = await ctx.step("process", lambda: image.resize(file_data))

    # Step 3: Upload result
    processed_key = await ctx.step("upload", lambda: s3.upload(params.bucket, processed_data))

    return ProcessFileResult(processed_key=processed_key, size_bytes=len(processed_data))

# === Worker Process ===

async def worker_main():
    store = await connect("postgresql://localhost/mydb")

    # Install schema (first time only)
    await admin(store).install()

    # Create workflow definition (idempotent)
    await store.create_workflow("process_file")

    # Register worker with handler
    worker = await consumer("worker-1", 8080, "process_file") \
        .handler(process_file_handler) \
        .create(store)

    # Poll forever
    await worker.poll_forever()

# === Trigger (HTTP Handler) ===

async def handle_upload(bucket: str, key: str) -> str:
    store = await connect("postgresql://localhost/mydb")

    # Trigger workflow (non-blocking)
    run_id = await workflow("process_file") \
        .trigger(ProcessFileParams(bucket, key)) \
        .execute(store)

    return f"Processing started: run_id={run_id}"

# === Check Result Later ===

async def get_result(run_id: int) -> ProcessFileResult:
    store = await connect("postgresql://localhost/mydb")

    run = await workflow("process_file") \
        .get_run(run_id, store)

    match run.status:
        case RunStatus.SUCCESS:
            return run.output()
        case RunStatus.ERROR:
            raise RuntimeError(f"Workflow failed: {run.error}")
        case _:
            raise RuntimeError("Still running")
