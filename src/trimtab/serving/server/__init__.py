"""A server process: batches of segments from a wire, and what they take."""
