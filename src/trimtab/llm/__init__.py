"""LLM parallelism: specifications, cost models, plans and what launches them."""
