"""`trimtab serve`: the inference fleet."""
