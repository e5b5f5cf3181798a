from stepwell import workflow_decorator, discover_workflows

# Annotate workflow handlers
@workflow(name="zip_files")
async def zip_files_handler(ctx, params: ZipParams) -> ZipResult:
    # Implementation...
    return ZipResult(...)

@workflow(name="send_emails")
async def send_emails_handler(ctx, params: EmailParams) -> EmailResult:
    # Implementation...
    return EmailResult(...)

# Auto-discovery
async def main():
    store = await connect("postgres://localhost/mydb")
    
    # Discover all decorated workflows
    workflows = discover_workflows()
    
    # Register all
    for name, handler in workflows.items():
        await store.create_workflow(name)
        
        await consumer("worker-1", 8080, name) \
            .handler(handler) \
            .create(store)
