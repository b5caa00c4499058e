"""Questions, the plans that are legal for them, and the best of those."""
