"""What was made of a dump."""

from typing import NamedTuple

from trimtab.core import Cluster


class Understood(NamedTuple):
    cluster: Cluster
    comments: dict[str, str]  # field of the cluster file: where it comes from
    notes: list[str]  # what was left out, and what is not modelled
