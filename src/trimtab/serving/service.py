"""The whole of `trimtab serve` as one object: fleet, fronts, servers, signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.errors import ServeError
from trimtab.files import refusal
from trimtab.serving.fleet.books import Books
from trimtab.serving.fleet.fleet import LiveFleet
from trimtab.serving.fleet.member import Member
from trimtab.serving.fleet.router import Router, router_of, tried
from trimtab.serving.front.grpc_front import GrpcFront
from trimtab.serving.front.http_front import HttpFront, no_metrics
from trimtab.serving.front.metrics_text import page
from trimtab.serving.net import slim_weights
from trimtab.serving.net.serve_profile import ServeProfile, path_of, shipped_for
from trimtab.serving.net.serve_profile import load as load_profile
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.nouns import WIDTHS
from trimtab.serving.server.server import NOOP, checked_device, digest_of
from trimtab.serving.server.spawn import Processes, RayActors
from trimtab.serving.settings import OFF, TOKEN, Compute, ServerSettings, Settings

if TYPE_CHECKING:
    from trimtab.serving.fleet.tracing import Tracer

NOOP_QUEUE = 4096
RELOAD_S = 1.0  # between two looks at the router's file


def fixed_row(text: str) -> int:
    """The row of a tuple written as widths; one width stands for all segments."""
    if not text:
        return 255
    try:
        widths = [WIDTHS.index(float(part)) for part in text.split(",")]
        return row_of(widths if len(widths) > 1 else widths * 4)
    except (ValueError, ServeError):
        raise ServeError(
            f"fixed={text!r}: give one width or four of 0.25, 0.5, 0.75, 1, such as 0.25,0.5,0.75,1"
        ) from None


def profile_of(path: str, weights: slim_weights.Weights) -> ServeProfile:
    """The profile asked for, with the accuracy of this network where it was measured."""
    profile = load_profile(path)
    if np.isfinite(weights.accuracy).all():
        object.__setattr__(profile, "accuracy", weights.accuracy)
    return profile


def check_host(settings: Settings) -> None:
    """Raise for a host that nobody knows, before half a minute is spent on compiling."""
    try:
        socket.getaddrinfo(settings.host, None)
    except OSError as problem:
        where = f"{settings.host}:{settings.http_port}"
        raise ServeError(f"cannot listen on {where}: {refusal(problem)}") from None


class Service:
    """A fleet with its fronts and its servers, from start to drain."""

    def __init__(self, settings: Settings, say: Callable[[str], None] = print) -> None:
        self.settings, self.say = settings, say
        if checked_device(settings.device) != "cpu" and settings.ray:
            raise ServeError(
                f"--ray gives its servers no GPU; leave out --device {settings.device}"
            )
        check_host(settings)
        self.tracer = tracer_of(settings)
        if settings.device != "cpu" and not settings.profile:
            say(
                "routing by an H200's profile until servers show their speed; better: "
                f"trimtab serve profile --device {settings.device}, then --profile"
            )
        say("starting; the first time after an update, rules are compiled for about half a minute")
        self.weights = slim_weights.load(settings.weights or slim_weights.SHIPPED)
        self.profile = profile_of(settings.profile or shipped_for(settings.device), self.weights)
        self.fixed = fixed_row(settings.fixed)
        self.token = settings.token or os.environ.get(TOKEN) or secrets.token_urlsafe(16)
        self.log = logging.getLogger("trimtab.serve")
        self.folder = Path(tempfile.mkdtemp(prefix="trimtab-"))
        self.stopping = asyncio.Event()
        self.stamp: Any = self.router_stamp()
        self.looked_s = 0.0
        self.fronts: list[Any] = []
        self.listening: list[asyncio.AbstractServer] = []
        self.spawned: Processes | RayActors | None = None
        self.http: HttpFront | None = None
        self.grpc: GrpcFront | None = None
        self.fleet_address = ""
        router = self.router()
        tried(router.rule, self.profile)  # compiled before the first request comes
        self.books = Books(
            self.weights,
            self.profile,
            router,
            objective_s=settings.objective_s,
            # a profile says nothing about a network that costs nothing
            queue_max=settings.queue_max or (NOOP_QUEUE if settings.noop else None),
            token=self.token,
            digest=NOOP if settings.noop else digest_of(self.weights),
        )
        self.fleet = LiveFleet(self.books, self.tracer)

    def router(self) -> Router:
        return router_of(self.settings.router, self.profile, fixed=self.fixed)

    async def run(self) -> int:
        """Serve until a signal comes; the exit code."""
        self.mind_signals()
        try:
            await self.start()
            await self.stopping.wait()
            return 0 if await self.drain() else 1
        finally:
            self.close()

    def mind_signals(self) -> None:
        """Take the signals of an operator."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    async def start(self) -> None:
        """Listen, start the servers, and wait until one is ready or a signal comes."""
        settings, fleet = self.settings, self.fleet
        fleet.start()
        await self.listen()
        self.spawned = self.servers()
        self.mind_signals()  # again: ray takes SIGTERM for itself
        if self.spawned is not None:
            fleet.care.checks.append(self.spawned.check)
        fleet.care.checks.append(self.look)
        version = metadata.version("trimtab")
        if settings.http_port != OFF:
            self.http = HttpFront(
                fleet,
                metrics=(lambda: page(fleet.view())) if settings.metrics else no_metrics,
                version=version,
            )
            await self.http.start(settings.host, settings.http_port)
            self.fronts.append(self.http)
            self.say(f"http  http://{settings.host}:{self.http.port}")
        if settings.grpc_port != OFF:
            self.grpc = GrpcFront(fleet, version=version, traced=self.tracer is not None)
            await self.grpc.start(settings.host, settings.grpc_port)
            self.fronts.append(self.grpc)
            self.say(f"grpc  {settings.host}:{self.grpc.port}")
        wanted = max(len(settings.shares), 1)
        while len(self.books.roster.seated) < wanted and not self.stopping.is_set():
            await asyncio.sleep(0.02)
            if self.spawned is not None and self.spawned.mistaken and not fleet.ready:
                raise ServeError("no server starts; what is wrong stands above")
        # what was made until now stays: the collector need not look at it again and again
        gc.freeze()
        if fleet.ready:
            self.say(f"ready model {fleet.model.name}, router {self.books.router.name}")

    async def listen(self) -> None:
        """Take servers: by a socket of this machine, and by TCP where it is asked for."""
        loop, settings = asyncio.get_running_loop(), self.settings
        path = str(self.folder / "fleet")
        local = await loop.create_unix_server(lambda: Member(self.fleet, True), path)
        self.listening.append(local)
        self.fleet_address = f"unix:{path}"
        if settings.fleet_port == OFF and not settings.ray:
            return
        try:
            wide = await loop.create_server(
                lambda: Member(self.fleet, False), settings.host, max(settings.fleet_port, 0)
            )
        except OSError as problem:
            where = f"{settings.host}:{settings.fleet_port}"
            raise ServeError(f"cannot listen on {where}: {refusal(problem)}") from None
        self.listening.append(wide)
        self.tcp_address = "{}:{}".format(*wide.sockets[0].getsockname()[:2])
        if settings.fleet_port != OFF:
            self.say(f"fleet {self.tcp_address} token {self.token}")

    def servers(self) -> Processes | RayActors | None:
        """What starts the servers that are asked for."""
        settings = self.settings
        if not settings.shares:
            return None
        alike = {one.name: getattr(settings, one.name) for one in fields(Compute)}
        about = ServerSettings(**alike)
        # a child may have another folder
        if about.weights:
            about = replace(about, weights=os.path.abspath(about.weights))
        if about.profile:
            about = replace(about, profile=str(path_of(about.profile)))
        if settings.ray:
            about = replace(about, token=self.token)
            return RayActors(self.tcp_address, settings.shares, about)
        return Processes(self.fleet_address, settings.shares, about)

    def stop(self) -> None:
        """Begin to drain; a second time ends at once."""
        if self.stopping.is_set():
            self.say("stopped at once")
            self.close(0.0)
            os._exit(130)
        self.books.leaving = True
        self.say("draining")
        self.stopping.set()

    async def drain(self) -> bool:
        """Stop in order: not ready, a grace, no new requests, all answered, servers gone."""
        settings = self.settings
        done = await asyncio.gather(
            *(front.drain(settings.grace_s, settings.drain_s) for front in self.fronts)
        )
        if self.spawned is not None:
            self.spawned.ending = True
        answered = await self.fleet.drain(settings.drain_s)
        self.say("drained" if answered and all(done) else "gave up what was still open")
        return answered and all(done)

    def close(self, limit_s: float = 2.0) -> None:
        """End what is still there."""
        self.fleet.close()
        for server in self.listening:
            server.close()
        if self.spawned is not None:
            self.spawned.stop(limit_s)
        if self.tracer is not None and limit_s > 0:
            self.tracer.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def router_stamp(self) -> Any:
        """What changes when the router's file does."""
        try:
            file = os.stat(self.settings.router)
            return file.st_mtime_ns, file.st_size, file.st_ino
        except OSError:
            return None

    def look(self, now_s: float) -> None:
        """Take a changed router file over, about once a second."""
        if now_s - self.looked_s >= RELOAD_S and self.settings.router.endswith(".npz"):
            self.looked_s = now_s
            if (stamp := self.router_stamp()) != self.stamp:
                self.stamp = stamp
                self.reload()

    def reload(self) -> None:
        """Read the router again beside the serving; one that cannot be read changes nothing."""
        asyncio.get_running_loop().run_in_executor(None, self.router).add_done_callback(self.swap)

    def swap(self, loaded: asyncio.Future[Router]) -> None:
        try:
            router = loaded.result()
        except Exception as problem:
            router = self.books.router._replace(problem=str(problem))
        if router.problem:
            self.log.warning("router not reloaded: %s", router.problem)
            self.books.router = self.books.router._replace(problem=router.problem)
            return
        self.books.use(router)
        self.say(f"router {router.name} loaded")


def tracer_of(settings: Settings) -> Tracer | None:
    """What is told of requests that have ended; without it nothing is imported."""
    if not settings.otlp:
        return None
    from trimtab.serving.fleet.tracing import Tracer

    return Tracer(settings.otlp, settings.trace_share)


def operate(settings: Settings, say: Callable[[str], None] = print) -> int:
    """Serve on this thread until a signal comes; the exit code."""

    async def serve() -> int:
        return await Service(settings, say).run()

    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(serve())
    if sys.platform == "win32":
        return asyncio.run(serve())
    return int(uvloop.run(serve()))
