from stepwell import workflow, consumer, connect
from dataclasses import dataclass

@dataclass
class ZipParams:
    bucket: str
    prefix: str

@dataclass
class ZipResult:
    archive_path: str
    file_count: int

# Workflow handler
async def zip_files_handler(ctx, params: ZipParams) -> ZipResult:
    # Step 1: List files
    files = await ctx.step("list_files", lambda: s3.list_objects(params.bucket, params.prefix))
    
    # Step 2: Download
    local_files = await ctx.step("download_files", lambda: download_all(files))
    
    # Step 3: Create archive
    archive_path = await ctx.step("create_archive", lambda: zip.create(local_files))
    
    return ZipResult(archive_path=archive_path, file_count=len(files))

# Worker registration
async def worker_main():
    store = await connect("postgresql://localhost/mydb")
    
    # Setup (idempotent)
    await store.create_workflow("zip_files")
    
    # Register worker with handler
    worker = await consumer("worker-1", 8080, "zip_files") \
        .handler(zip_files_handler) \
        .create(store)
    
    # Poll forever
    await worker.poll_forever()

# Trigger (non-blocking)
async def handle_upload(bucket: str, prefix: str) -> int:
    store = await connect("postgresql://localhost/mydb")
    
    run_id = await workflow("zip_files") \
        .trigger(ZipParams(bucket=bucket, prefix=prefix)) \
        .execute(store)
    
    print(f"Started run: {run_id}")
    return run_id

# Check status
async def check_status(run_id: int):
    store = await connect("postgresql://localhost/mydb")
    
    run = await workflow("zip_files") \
        .get_run(run_id, store)
    
    if run.status == "SUCCESS":
        result = run.output()  # Automatically deserialized
        print(f"Done: {result.archive_path}")
    elif run.status == "ERROR":
        print(f"Failed: {run.error}")
    else:
        print("Still running...")
