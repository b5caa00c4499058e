"""The ADLRO paper's deep Q-network: network, replay, learner, training."""
