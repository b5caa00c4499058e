"""The learned scheduler of mixed GPU clusters: codec, network, policy, training, drift."""
