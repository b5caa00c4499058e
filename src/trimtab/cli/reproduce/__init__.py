"""`trimtab reproduce`: a paper's tables beside ours."""
