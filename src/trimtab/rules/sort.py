"""Sorting inside compiled code: small, without allocation, and stable by construction."""

from trimtab.compiled import compiled, inner


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
    heap_up(keys, turn, size)
    for end in range(size - 1, 0, -1):
        pop(keys, turn, end + 1)


@inner
def heap_up(keys, turn, size):
    """Arrange the numbers 0 .. size - 1 so that the one with the largest key is first."""
    for i in range(size):
        turn[i] = i
    for i in range(size // 2 - 1, -1, -1):
        sift(keys, turn, i, size)


@inner
def pop(keys, turn, size):
    """Take the first of `size` out, to the place behind the rest, which is arranged again."""
    top = turn[0]
    turn[0] = turn[size - 1]
    turn[size - 1] = top
    sift(keys, turn, 0, size - 1)
    return top
