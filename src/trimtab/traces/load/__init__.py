"""Samples of machines' load: from recorded files and from a Prometheus server."""
