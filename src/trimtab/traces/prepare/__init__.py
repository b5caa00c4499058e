"""From the tables of a cluster trace to clean load and work: `trimtab trace prepare`."""

from trimtab.traces.prepare.from_samples import prepare_samples
from trimtab.traces.prepare.plan import Options
from trimtab.traces.prepare.steps import prepare

__all__ = ["Options", "prepare", "prepare_samples"]
