"""RLScheduler's sequences and weeks of other logs: rollouts beside rules and published values."""
