"""Two later deploys of `flows.py`, each with one change; a real shop has them in git."""
