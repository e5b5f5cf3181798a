"""A shop in three parts: the web process, the worker, and the table that both of them know. See README.md."""
