"""Nodes of a job: chosen by a scan or by an index, and booked."""
