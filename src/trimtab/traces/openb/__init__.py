"""Lists of pods on shared GPUs: orders of arrival drawn again by seed, and lists that are made."""
