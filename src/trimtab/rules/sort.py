"""Sorting inside compiled code: small, without allocation, and stable by construction."""

from trimtab.rules.world import compiled, inner


@inner
def later(keys, a, b):
    """Whether entry a comes after entry b: by key, then by number."""
    return keys[a] > keys[b] or (keys[a] == keys[b] and a > b)


@inner
def sift(keys, turn, i, size):
    top = turn[i]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and later(keys, turn[child + 1], turn[child]):
            child += 1
        if not later(keys, turn[child], top):
            break
        turn[i] = turn[child]
        i = child
    turn[i] = top


@compiled
def sort_turn(keys, turn, size):
    """Write to `turn` the numbers 0 .. size - 1 in ascending order of their keys (heap sort)."""
    for i in range(size):
        turn[i] = i
    for i in range(size // 2 - 1, -1, -1):
        sift(keys, turn, i, size)
    for end in range(size - 1, 0, -1):
        turn[0], turn[end] = turn[end], turn[0]
        sift(keys, turn, 0, end)
