"""Scenes in which batch jobs live on what services reserve and do not use: docs/colocation.md."""
