"""What every training with torch shares: devices, checkpoints, logs, and how it is stopped."""
