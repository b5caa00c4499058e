"""`trimtab cluster`: cluster files."""
