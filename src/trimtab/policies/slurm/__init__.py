"""Slurm's own rule: multifactor priority, its main scheduler and its backfill."""
