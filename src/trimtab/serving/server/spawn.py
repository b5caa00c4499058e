"""Servers started by the front: processes on this machine, or Ray actors."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trimtab.errors import ServeError
from trimtab.serving.server.server import run_server
from trimtab.serving.settings import ServerSettings

BACK_OFF_S, BACK_OFF_MAX_S = 0.2, 5.0
MISTAKE = 2  # exit code of a server that was told something wrong
STEADY_S = 10.0  # a server that lived so long starts again without waiting


class Place:
    """One server to keep running."""

    def __init__(self, name: str, share: float) -> None:
        self.name, self.share = name, share
        self.process: Any = None
        self.began_s = self.start_s = 0.0
        self.wait_s = BACK_OFF_S


class Processes:
    """Server processes of this machine, started again when they end."""

    def __init__(self, address: str, shares: Sequence[float], settings: ServerSettings) -> None:
        if not shares or not all(0 < share <= 1 for share in shares):
            raise ServeError(f"shares={tuple(shares)}: give a number above 0 and up to 1 a server")
        self.address, self.settings = address, replace(settings, kind="local", parent=os.getpid())
        self.places = [Place(f"local-{at}", share) for at, share in enumerate(shares)]
        self.log = logging.getLogger("trimtab.serve")
        self.ending = False
        self.mistaken = False  # a server said what is wrong, and would say it again

    def check(self, now_s: float) -> None:
        """Start what is not running and may be."""
        for place in self.places:
            if self.ending:
                return
            if place.process is not None and place.process.poll() is not None:
                if now_s - place.began_s > STEADY_S:
                    place.wait_s = BACK_OFF_S
                self.log.warning(
                    "server %s ended (%s); again in %.1f s",
                    place.name,
                    place.process.returncode,
                    place.wait_s,
                )
                self.mistaken |= place.process.returncode == MISTAKE
                place.process, place.start_s = None, now_s + place.wait_s
                place.wait_s = min(2 * place.wait_s, BACK_OFF_MAX_S)
            if place.process is None and now_s >= place.start_s:
                place.process, place.began_s = self.started(place), now_s

    def started(self, place: Place) -> subprocess.Popen[bytes]:
        about = replace(self.settings, name=place.name, share=place.share)
        command = [sys.executable, "-m", "trimtab.serving.server", self.address, about.text()]
        count = str(about.threads)
        own = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        # a session of its own: Ctrl-C is for the front, which lets its servers finish
        return subprocess.Popen(
            command, env={**os.environ, **own}, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def stop(self, limit_s: float = 5.0) -> None:
        """End what still runs: first kindly, then not."""
        self.ending = True
        running = [place.process for place in self.places if place.process is not None]
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class RayActors:
    """Servers as Ray actors of one CPU each, which connect over TCP like any other."""

    def __init__(self, address: str, shares: Sequence[float], settings: ServerSettings) -> None:
        try:
            import ray
        except ModuleNotFoundError as missing:
            raise ServeError("ray is not installed; pip install 'trimtab[ray]'") from missing
        self.ray = ray
        if not ray.is_initialized():
            ray.init(
                num_cpus=len(shares), include_dashboard=False, log_to_driver=False,
                configure_logging=False,
            )  # fmt: skip
        self.address, self.settings = address, replace(settings, kind="ray")
        self.actor: Any = ray.remote(num_cpus=1, max_restarts=0)(RayServer)
        self.places = [Place(f"ray-{at}", share) for at, share in enumerate(shares)]
        self.ending = self.mistaken = False

    def check(self, now_s: float) -> None:
        """Start what is not running and may be."""
        for place in self.places:
            if self.ending:
                return
            if place.process is not None and self.ray.wait([place.process[1]], timeout=0)[0]:
                place.process, place.start_s = None, now_s + place.wait_s
                place.wait_s = min(2 * place.wait_s, BACK_OFF_MAX_S)
            if place.process is None and now_s >= place.start_s:
                actor = self.actor.remote()
                about = replace(self.settings, name=place.name, share=place.share)
                place.process = actor, actor.run.remote(self.address, about)

    def stop(self, limit_s: float = 5.0) -> None:
        """End every actor, and the Ray that was started for them."""
        self.ending = True
        for place in self.places:
            if place.process is not None:
                self.ray.kill(place.process[0])
        self.ray.shutdown()


class RayServer:
    """What runs inside an actor."""

    def run(self, address: str, about: ServerSettings) -> None:
        run_server(address, about)
