"""Orders of the queue played out before one is followed."""
