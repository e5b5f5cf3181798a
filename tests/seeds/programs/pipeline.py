import stepwell

@stepwell.step(id="fetch")
def fetch_data(ctx, url: str) -> str:
    # Context is passed automatically to handle persistence
    return requests.get(url).text

@stepwell.step(id="process")
def process_data(ctx, data: str) -> dict:
    return json.loads(data)

@stepwell.workflow
def my_pipeline(ctx, url: str):
    # Workflow logic looks like normal python code
    data = fetch_data(ctx, url)
    return process_data(ctx, data)
