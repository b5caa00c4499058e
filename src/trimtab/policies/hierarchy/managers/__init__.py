"""Ways to find a manager that pays, and what one that knew the future would gain."""
