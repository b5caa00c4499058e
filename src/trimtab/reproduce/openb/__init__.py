"""Packing shared GPUs: openb's lists as in the FGD paper (ATC'23)."""
