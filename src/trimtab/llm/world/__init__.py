"""The world of changing conditions in which learners and rules choose plans."""
