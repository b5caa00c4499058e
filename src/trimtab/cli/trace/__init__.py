"""`trimtab trace`: traces and load."""
