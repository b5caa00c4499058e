"""What the Slim Scheduler paper claims, measured."""
