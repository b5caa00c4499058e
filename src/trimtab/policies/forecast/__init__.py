"""The learned estimate of services' use: its training. The model is in `rules.forecast`."""
