"""Work on a Ray cluster, one item a task: the same results in the same turn as here."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray

from trimtab.errors import PolicyError, TrimtabError

STORE_BYTES = 80 << 20  # what travels is small: what scenes are drawn from, and what they came to
RETRIES = 3  # of a task whose worker was lost


@contextmanager
def joined(address: str = "") -> Iterator[OnRay]:
    """The cluster at an address, or one started here and ended again; one joined before stays."""
    began = not ray.is_initialized()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if began and address:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError) as error:
            raise PolicyError(
                f"on=ray:{address}: no Ray cluster there ({error}); start one with "
                f"`ray start --head`, or give on=ray to use this machine"
            ) from None
    elif began:
        local: dict[str, Any] = {"address": "local", "include_dashboard": False}
        ray.init(**local, object_store_memory=STORE_BYTES, **quiet)
    try:
        yield OnRay()
    finally:
        if began:
            ray.shutdown()


class OnRay:
    """What `Spread` wants, by tasks of one CPU each."""

    def map(self, work: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_done)
        how = ray.put((work, os.getcwd()))
        going = [task.remote(how, item) for item in items]
        try:
            for one in going:
                yield _result(one)
        except BaseException:
            for one in going:
                ray.cancel(one)
            raise


def _done(how: tuple[Callable[[Any], Any], str], item: Any) -> Any:
    """The work on one item, where files have the names that they have for who asks."""
    work, folder = how
    with suppress(OSError):  # on a machine without that folder only full paths can be meant
        os.chdir(folder)
    return work(item)


def _result(task: Any) -> Any:
    """What a task returned; its own mistakes as they were raised, without Ray's traceback."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, TrimtabError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[0]
        raise PolicyError(
            f"on=ray: a worker was lost ({first}); give the same command again to go on"
        ) from None
