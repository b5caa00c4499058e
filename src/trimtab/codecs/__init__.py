"""Snapshot to arrays and back: what learners see and choose from."""
