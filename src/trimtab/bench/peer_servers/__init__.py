"""Other inference servers doing the same work, one file each: what `trimtab bench serve` starts."""
