"""The fleet behind a front: its requests, its members, and the books that both are on."""
