"""Scheduling rules: an order of the queue x a way to backfill x a choice of node, compiled."""
