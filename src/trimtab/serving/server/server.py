"""A server process of a live fleet: it connects to the front, warms up, works, and leaves.

    python -m trimtab.serving.server unix:PATH
    python -m trimtab.serving.server HOST:PORT '{"token": "T", "workers": 2}'

The front may be gone at any time: the end of the connection ends the process, and on Linux so does
the end of the process that started it.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import ServeError
from trimtab.serving.net.runner import Runner, Zeros
from trimtab.serving.net.segments import Segments
from trimtab.serving.net.serve_profile import load as load_profile
from trimtab.serving.net.serve_profile import modelled, shipped_for
from trimtab.serving.net.slim_form import Form
from trimtab.serving.net.slim_weights import SHIPPED, Weights, load
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.server.power import meter
from trimtab.serving.server.runners import Runners, as_measured, cache_folder, engines, is_of, tuned
from trimtab.serving.server.wire import (
    BEAT,
    BYE,
    HELLO,
    LEAVE,
    READY,
    REFUSED,
    WELCOME,
    WORK,
    Frame,
    FrameReader,
    answer_frame,
    connected,
    heard,
    packed_answer,
    read_work,
    said,
)
from trimtab.serving.server.workshop import Outcome, Workshop
from trimtab.serving.settings import TOKEN, ServerSettings, settings_of

BEAT_S = 0.2
LEAVE_S = 30.0  # the longest that a leaving server works on
LISTEN_S = 5e-4  # a batch shorter than this does not keep what comes waiting
NOOP = "noop"


def runner_of(weights: Weights, device: str = "cpu", threads: int = 1, profile: str = "") -> Runner:
    """What runs a network's segments here: each in the way that the profile found fastest, where
    that was measured on this kind of device. Else a GPU's ways are measured once for each network
    and remembered, and a CPU has the plain one. profile: a file or a shipped one's name.
    """
    known = load_profile(profile or shipped_for(device))
    if is_of(known, device):
        tuning = as_measured(known)
        made = engines(weights, tuning.ways, device, threads, tuning.buckets)
        return Runners(tuning, made) if len(made) > 1 else next(iter(made.values()))
    if device == "cpu":
        return Segments(weights, threads)
    return tuned(weights, device, threads=threads, cache=cache_folder())


def checked_device(device: str) -> str:
    """The name of a device, if it is one."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ServeError(f"device={device!r} is unknown; give cpu, cuda or cuda:1")
    return device


def digest_of(weights: Weights) -> str:
    """What tells two networks apart."""
    digest = hashlib.blake2b(repr(weights.form).encode(), digest_size=16)
    for name in sorted(weights.arrays):
        digest.update(np.ascontiguousarray(weights.arrays[name]).data)
    return digest.hexdigest()


class Server:
    """One server's side of a connection."""

    def __init__(
        self,
        sock: socket.socket,
        runner: Runner,
        form: Form,
        *,
        digest: str,
        name: str,
        kind: str = "local",
        token: str = "",
        workers: int = 1,
        share: float = 1.0,
        paced: bool = True,
        device: str = "cpu",
    ) -> None:
        if workers < 1 or not 0 < share <= 1:
            raise ServeError(
                f"workers={workers}, share={share}: give 1 or more, and 0 < share <= 1"
            )
        self.sock, self.runner, self.form, self.device = sock, runner, form, device
        self.paced = paced  # waits after batches; else the device itself keeps it to its share
        self.hello: dict[str, Any] = {
            "digest": digest,
            "name": name,
            "kind": kind,
            "token": token,
            "workers": workers,
            "share": share,
            "pid": os.getpid(),
        }
        self.reader = FrameReader(trusted=True)
        self.sending = threading.Lock()
        self.leaving = threading.Event()
        self.gone = threading.Event()
        self.over = threading.Event()  # nothing runs any more
        self.alone = workers == 1
        self.heard_s = 0.0
        self.threads: list[threading.Thread] = []
        self.shop: Workshop | None = None
        self.problem = ""  # why it cannot serve

    def serve(self) -> None:
        """Greet, warm up and work until the front ends it or `leave` is called."""
        self.write(said(HELLO, **self.hello))
        try:
            while not self.gone.is_set():
                self.hear(self.sock.recv_into(self.reader.room()))
                if self.alone and self.shop is not None:
                    self.work_off(self.shop)
        except ConnectionError:
            pass
        finally:
            self.gone.set()
            self.over.set()
            if self.shop is not None:
                self.shop.close(0.0)
            for thread in self.threads:
                thread.join(5.0)
            self.sock.close()
        if self.problem:
            raise ServeError(self.problem)

    def hear(self, count: int) -> None:
        """Take what was received."""
        self.heard_s = time.monotonic()
        if count == 0:
            raise ConnectionError("the front has ended the connection")
        for frame in self.reader.fill(count):
            self.threads += self.take(frame)

    def work_off(self, shop: Workshop) -> None:
        """Work on this thread, which hands nothing over to another and so costs least."""
        while not self.gone.is_set():
            with shop.turn:
                wait_s = shop.work_off(self.listen)
            if not shop.busy():
                return
            # what is left waits for a load that is not allowed yet, or for other work to come
            ready, _, _ = select.select([self.sock], [], [], min(wait_s, LEAVE_S))
            if ready:
                return

    def listen(self) -> None:
        """Take what came while a batch ran, if that took a while."""
        if time.monotonic() - self.heard_s > LISTEN_S:
            with suppress(BlockingIOError):
                while True:
                    room = self.reader.room()
                    self.hear(self.sock.recv_into(room, 0, socket.MSG_DONTWAIT))

    def take(self, frame: Frame) -> list[threading.Thread]:
        """Do what the front says; returns the threads begun for it."""
        kind, meta, tensor = frame
        if kind == WORK and self.shop is not None:
            work = read_work(meta)
            shape = len(work.ids), *self.runner.takes(work.segment, work.before)
            self.shop.put(work, np.frombuffer(tensor, np.float32).reshape(shape))
        elif kind == WELCOME:
            return self.begin(heard(meta))
        elif kind == LEAVE:
            return started(self.finish, "leave")
        elif kind == REFUSED:
            raise ServeError(f"the fleet refused this server: {heard(meta).get('reason')}")
        return []

    def begin(self, welcome: dict[str, Any]) -> list[threading.Thread]:
        """Open shop as the front says, and warm up beside the reading."""
        warm = [(int(s), int(b), int(w)) for s, b, w in welcome["warm"]]
        profile = modelled(self.form, idle_w=welcome["idle_w"], busy_w=welcome["busy_w"])
        self.shop = Workshop(
            self.runner,
            profile,
            self.post,
            workers=self.hello["workers"],
            share=self.hello["share"] if self.paced else 1.0,
            warm=warm,
            knobs=Knobs(**welcome["knobs"]),
            meter=meter(self.device, idle_w=profile.idle_w, busy_w=profile.busy_w),
        )
        shop = self.shop

        def ready() -> None:
            shop.warm_up(warm, self.gone.is_set)
            for _, reason in shop.broken.values():
                print(f"warm-up: {reason}", file=sys.stderr)
            if warm and len(shop.broken) == len(set(warm)):
                self.problem = f"no segment loads; the last one: {reason}"
                self.end()
                return
            if not self.alone:
                shop.start()
            gc.freeze()
            self.write(answer_frame(READY, *shop.report()))

        return started(ready, "warm-up") + started(self.beat, "beat")

    def post(self, outcome: Outcome) -> None:
        """Send rows back."""
        kind, report, runs, segment, ids, widths, tensor = outcome
        packed = tensor.encode() if isinstance(tensor, str) else memoryview(tensor).cast("B")
        parts = report, runs.tobytes(), segment, ids.tobytes(), widths.tobytes()
        self.write(packed_answer(kind, *parts, packed))

    def beat(self) -> None:
        """Say every now and then how things are."""
        while not self.gone.wait(BEAT_S):
            if self.shop is not None:
                self.shop.drop_idle()
                self.write(answer_frame(BEAT, *self.shop.report()))

    def write(self, frame: bytes) -> None:
        try:
            with self.sending:
                self.sock.sendall(frame)
        except OSError:
            self.gone.set()  # the reader finds the end by itself

    def leave(self) -> None:
        """Ask the front for no more work, finish what is here, and go."""
        if not self.leaving.is_set():
            self.leaving.set()
            self.write(said(LEAVE))

    def finish(self) -> None:
        """Finish what is here and say goodbye."""
        if self.shop is not None:
            self.shop.close(LEAVE_S)
            self.write(answer_frame(BYE, *self.shop.report()))
        self.end()

    def end(self) -> None:
        """End the connection; the reader finds out."""
        self.gone.set()
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


def started(target: Callable[[], None], name: str) -> list[threading.Thread]:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return [thread]


def run_server(
    address: str,
    settings: ServerSettings,
    on_start: Callable[[Server], None] = lambda server: None,
) -> None:
    """Connect to a fleet and serve until it ends."""
    if settings.cpu_list:
        os.sched_setaffinity(0, parsed_cpus(settings.cpu_list))
    device = checked_device(settings.device)
    paced = device == "cpu" or not limit_sms(settings.share)
    runner: Runner
    if settings.noop:
        form, digest = Form(), NOOP
        runner = Zeros(form)
    else:
        held = load(settings.weights or SHIPPED)
        form, digest = held.form, digest_of(held)
        runner = runner_of(held, device, settings.threads, settings.profile)
    server = Server(
        connected(address),
        runner,
        form,
        digest=digest,
        name=settings.name or f"{socket.gethostname()}-{os.getpid()}",
        kind=settings.kind,
        token=settings.token or os.environ.get(TOKEN, ""),
        workers=settings.workers,
        share=settings.share,
        paced=paced,
        device=device,
    )
    on_start(server)
    server.serve()


def limit_sms(share: float) -> bool:
    """Give this process a share of the GPU's multiprocessors, where NVIDIA's MPS shares them out;
    must come before CUDA starts.
    """
    folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if not Path(folder, "control").exists():
        return False
    os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{100 * share:g}"
    return True


def parsed_cpus(text: str) -> set[int]:
    """CPUs of a list such as 0-3,8."""
    try:
        cpus: set[int] = set()
        for part in text.split(","):
            low, _, high = part.partition("-")
            cpus |= set(range(int(low), int(high or low) + 1))
        return cpus
    except ValueError:
        raise ServeError(f"cpu_list={text!r}: give numbers and ranges, such as 0-3,8") from None


def die_with_parent(parent: int) -> None:
    """End this process when the one that started it ends, on Linux; elsewhere the socket tells."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if parent and os.getppid() != parent:
            sys.exit(0)  # it ended before we asked


def ended(server: Server) -> None:
    """End this process where a batch that never ends keeps it."""
    if not server.over.wait(LEAVE_S):
        os._exit(1)


def main(arguments: list[str] | None = None) -> int:
    """The command line of a server process: the fleet's address, and settings as JSON."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if len(given) not in (1, 2):
            raise ServeError(f"{len(given)} arguments: give ADDRESS and maybe settings as JSON")
        return join(given[0], settings_of(given[1]) if len(given) == 2 else ServerSettings())
    except ServeError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 2


def join(address: str, settings: ServerSettings) -> int:
    """Serve a fleet in this process, which signals end kindly; the exit code."""
    if settings.parent:
        die_with_parent(settings.parent)

    def on_start(server: Server) -> None:
        def leave() -> None:
            server.leave()
            ended(server)

        def guard() -> None:
            server.gone.wait()
            ended(server)

        for number in (signal.SIGTERM, signal.SIGINT):
            # a handler may not wait for a lock that the thread under it holds
            signal.signal(number, lambda *_: started(leave, "leave"))
        started(guard, "guard")

    run_server(address, settings, on_start)
    return 0
