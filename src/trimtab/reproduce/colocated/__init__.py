"""Batch jobs beside services: rules at equal harm, and what knowing the next minutes is worth."""
