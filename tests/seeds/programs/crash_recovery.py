from dataclasses import dataclass

@dataclass
class ProcessFileParams:
    bucket: str
    key: str

@dataclass
class ProcessFileResult:
    size_bytes: int

# Worker crashes after step 1 completes
async def process_file_handler(ctx, params: ProcessFileParams) -> ProcessFileResult:
    # Step 1: Download (completes, saved to DB)
    file_data = await ctx.step("download", lambda: s3.download(params.bucket, params.key))

    crash_here()  # Worker dies.

    # Step 2: Process (never executes)
    processed_data = await ctx.step("process", lambda: image.resize(file_data))

    return ProcessFileResult(size_bytes=len(processed_data))
