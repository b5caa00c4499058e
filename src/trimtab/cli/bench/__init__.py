"""`trimtab bench`: speed on this machine."""
