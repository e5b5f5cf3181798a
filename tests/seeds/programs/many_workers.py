import asyncio

from stepwell import connect, consumer

async def multi_worker_main():
    store = await connect("postgresql://localhost/mydb")

    # Setup workflows (one-time, idempotent)
    await store.create_workflow("zip_files")
    await store.create_workflow("send_emails")

    # Register multiple workers
    zip_worker = await consumer("worker-1", 8080, "zip_files") \
        .handler(zip_files_handler) \
        .create(store)

    email_worker = await consumer("worker-1", 8080, "send_emails") \
        .handler(send_emails_handler) \
        .create(store)

    # Service orchestrates polling
    polling = {
        asyncio.create_task(zip_worker.poll_forever()): "zip_worker",
        asyncio.create_task(email_worker.poll_forever()): "email_worker",
    }
    stopped, others = await asyncio.wait(polling, return_when=asyncio.FIRST_COMPLETED)
    for worker in stopped:
        print(f"{polling[worker]} stopped")
    for worker in others:
        worker.cancel()
    await asyncio.wait(others)
