"""Serving: the slimmable network, the executor that runs it and the server in front of it."""
