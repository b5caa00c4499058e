"""Models and GPUs by name, and pools of them: what datasheets and config files say."""
