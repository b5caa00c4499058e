"""Clients that load a server from the outside."""
