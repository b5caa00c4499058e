"""Speed on this machine, as ratios to what others have: a file a group of measurements."""
