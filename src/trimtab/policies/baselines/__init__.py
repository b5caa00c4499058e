"""Published schedulers that ours is compared with, a file each."""
