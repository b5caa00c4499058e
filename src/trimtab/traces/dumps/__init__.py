"""Clusters from what their own tools print: Slurm's scontrol, sinfo and sacctmgr, and kubectl."""
