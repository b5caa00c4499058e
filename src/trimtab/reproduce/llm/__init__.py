"""What the paper on learned parallelism claims, measured."""
