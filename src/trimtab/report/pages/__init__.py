"""The pages of a plan, of a reproduction and of a serving profile."""
