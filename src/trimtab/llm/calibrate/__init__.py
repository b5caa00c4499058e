"""Measure the laws of this machine's GPUs: `measure.calibrated` gives a `gpu_profile.GpuProfile`.

Every kind of measurement is a generator of rows in a file of its own; `laws` fits the rows without
torch. What a machine cannot measure is left out of the profile and noted.
"""
