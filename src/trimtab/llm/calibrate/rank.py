"""One rank of a group that all-reduces; the first writes a JSON row a size to standard output.

    python -m trimtab.llm.calibrate.rank KIND RANK RANKS FOLDER SECONDS START_S

The ranks find each other through a file in FOLDER. `sums` starts them.
"""

from __future__ import annotations

import json
import math
import signal
import sys
from datetime import timedelta
from time import perf_counter

import torch
import torch.distributed as dist

SIZES_B = [4096 * 4**step for step in range(10)]  # 4 KiB to 1 GiB
MOST_B = {"cuda": SIZES_B[-1], "cpu": SIZES_B[7]}
WARM, LEAST_REPEATS, MOST_REPEATS = 2, 3, 20
SIZE_PART = 0.25  # of the time left that one size may take
LAST_S = 15.0  # beyond its seconds a rank ends by itself, should nobody end it
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


def main() -> None:
    """Join the group, measure until the time is over, leave."""
    kind, folder = sys.argv[1], sys.argv[4]
    rank, ranks = int(sys.argv[2]), int(sys.argv[3])
    seconds, start_s = float(sys.argv[5]), float(sys.argv[6])
    # whatever hangs in a collective, the process ends
    signal.alarm(math.ceil(seconds + start_s + LAST_S))
    at = torch.device(kind, rank if kind == "cuda" else 0)
    if kind == "cuda":
        torch.cuda.set_device(at)
    dist.init_process_group(
        BACKENDS[kind],
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=start_s),
        device_id=at if kind == "cuda" else None,
    )
    measure(kind, at, rank, ranks, seconds)
    dist.destroy_process_group()


def measure(kind: str, at: torch.device, rank: int, ranks: int, seconds: float) -> None:
    """Every size, small ones first; the clock of the first rank says how often and when to stop."""
    whole = torch.ones(MOST_B[kind] // 2, dtype=torch.bfloat16, device=at)
    each_s, began_s = (_event_s if kind == "cuda" else _wall_s), perf_counter()
    for size_b in SIZES_B:
        if size_b > MOST_B[kind]:
            break
        part = whole[: size_b // 2].fill_(1.0)  # sums of sums would overflow
        once_s = each_s(part, WARM)[-1]
        left_s = seconds - (perf_counter() - began_s)
        repeats = min(int(SIZE_PART * left_s / once_s), MOST_REPEATS)
        agreed = torch.tensor([repeats], device=at)
        dist.broadcast(agreed, 0)
        if int(agreed.item()) < LEAST_REPEATS:
            break
        found = torch.tensor(each_s(part, int(agreed.item())), device=at)
        told = [torch.zeros_like(found) for _ in range(ranks)]
        dist.all_gather(told, found)
        if rank == 0:
            # in each turn the rank that came last waited for nobody
            run_s = float(torch.stack(told).amin(0).median())
            print(json.dumps([size_b, run_s]), flush=True)


def _event_s(part: torch.Tensor, repeats: int) -> list[float]:
    cold = torch.empty(64 * 2**20, dtype=torch.int8, device=part.device)
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(repeats)
    ]
    for before, after in pairs:
        cold.zero_()  # the host is ahead by the time the collective's turn comes
        before.record()
        dist.all_reduce(part)
        after.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) * 1e-3 for before, after in pairs]


def _wall_s(part: torch.Tensor, repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        began_s = perf_counter()
        dist.all_reduce(part)
        found.append(perf_counter() - began_s)
    return found


if __name__ == "__main__":
    main()
