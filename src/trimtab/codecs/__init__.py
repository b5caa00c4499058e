"""Snapshot to arrays and back: what a learner sees, what it may choose, what its choice means."""

# name -> "module:class", made with keyword arguments
BY_NAME: dict[str, str] = {
    "queue": "trimtab.codecs.queue:QueueCodec",
    "grid": "trimtab.codecs.grid:GridCodec",
}
