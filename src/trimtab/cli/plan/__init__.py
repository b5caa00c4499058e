"""`trimtab plan`: parallelism of language models."""
