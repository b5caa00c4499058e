"""The page of a comparison of policies."""
