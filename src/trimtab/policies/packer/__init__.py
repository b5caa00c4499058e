"""A placement score for shared GPUs, its weights found by evolution."""
