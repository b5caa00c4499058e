"""The simulator: an exact, compiled, event-driven engine and the backend around it."""
