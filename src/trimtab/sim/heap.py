"""An indexed binary heap of runs by end time: a run whose speed changes moves in place, exactly."""

from trimtab.compiled import inner


@inner
def before(runs, c, a, b):
    if runs[c, a].end_s != runs[c, b].end_s:
        return runs[c, a].end_s < runs[c, b].end_s
    # by job, then slot: a tie broken by number keeps two runs of one seed identical
    if runs[c, a].job != runs[c, b].job:
        return runs[c, a].job < runs[c, b].job
    return a < b


@inner
def up(heap, runs, c, i):
    run = heap[c, i]
    while i > 0:
        parent = (i - 1) >> 1
        if not before(runs, c, run, heap[c, parent]):
            break
        heap[c, i] = heap[c, parent]
        runs[c, heap[c, i]].place = i
        i = parent
    heap[c, i] = run
    runs[c, run].place = i


@inner
def down(heap, runs, c, i, size):
    run = heap[c, i]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and before(runs, c, heap[c, child + 1], heap[c, child]):
            child += 1
        if not before(runs, c, heap[c, child], run):
            break
        heap[c, i] = heap[c, child]
        runs[c, heap[c, i]].place = i
        i = child
    heap[c, i] = run
    runs[c, run].place = i


@inner
def push(heap, runs, c, run, size):
    heap[c, size] = run
    up(heap, runs, c, size)


@inner
def moved(heap, runs, c, run, size):
    """Restore the order after the run's end time changed."""
    i = runs[c, run].place
    up(heap, runs, c, i)
    if heap[c, i] == run:
        down(heap, runs, c, i, size)


@inner
def remove(heap, runs, c, run, size):
    """Take the run out; `size` counts it."""
    i = runs[c, run].place
    last = heap[c, size - 1]
    if last != run:
        heap[c, i] = last
        runs[c, last].place = i
        up(heap, runs, c, i)
        if heap[c, i] == last:
            down(heap, runs, c, i, size - 1)
