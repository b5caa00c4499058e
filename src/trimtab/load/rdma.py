"""Traffic of RDMA ports, which the kernel's network interfaces do not show.

InfiniBand and RoCE count under /sys/class/infiniband/CARD/ports/N/counters, in words of 4 bytes.
Amazon's EFA has other counters and is not read.
"""

import re
from pathlib import Path

from trimtab.load.probe import link_shares

ROOT = Path("/sys/class/infiniband")
WORD_B = 4
BYTES_A_GBIT = 1.25e8
ACTIVE = "4"  # of `state`: "4: ACTIVE"
RATE = re.compile(r"([\d.]+)\s*Gb/sec")  # "200 Gb/sec (4X HDR)"


class RdmaPorts:
    """Shares of all active ports' speed that were received and sent since the last reading."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._last: tuple[float, dict[str, tuple[int, int, float]]] | None = None

    def shares(self, now_s: float) -> tuple[float, float]:
        """Received and sent, 0..1; NaN at the first reading and where there is no active port."""
        last, self._last = self._last, (now_s, port_bytes(self.root))
        if last is None:
            return float("nan"), float("nan")
        return link_shares(last[1], self._last[1], now_s - last[0])


def port_bytes(root: Path = ROOT) -> dict[str, tuple[int, int, float]]:
    """Bytes received and sent and the speed, bytes a second, of each active port."""
    found = {}
    for port in sorted(root.glob("*/ports/*")):
        try:
            rate = RATE.search((port / "rate").read_text())
            if rate is None or not (port / "state").read_text().startswith(ACTIVE):
                continue
            received, sent = (
                WORD_B * int((port / "counters" / f"port_{way}_data").read_text())
                for way in ("rcv", "xmit")
            )
        except (OSError, ValueError):  # a card without these counters, or one just taken out
            continue
        found[f"{port.parts[-3]}/{port.name}"] = (received, sent, float(rate[1]) * BYTES_A_GBIT)
    return found
