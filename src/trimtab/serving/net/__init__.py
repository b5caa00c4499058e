"""The slimmable network: its form, its weights, its segments as they run, what they cost."""
