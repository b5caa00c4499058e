"""The page of a prepared trace."""
