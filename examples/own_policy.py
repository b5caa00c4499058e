"""A policy of your own against two rules on a mixed GPU cluster. Run: python own_policy.py"""

from trimtab.metrics import Result, measure
from trimtab.policies import named
from trimtab.rules.room import Room
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate


class ShortestOnFastest:
    """Shortest request first, on the nodes where this kind of job runs fastest."""

    def decide(self, snapshot):
        room = Room.of(snapshot)  # books our own decisions, so that the next one fits too
        decisions = []
        for job in sorted(snapshot.queue, key=lambda job: snapshot.jobs["request_s"][job]):
            rate = snapshot.profile.rate[snapshot.jobs["kind"][job], snapshot.nodes["kind"], 0]
            nodes = room.pick(job, score=rate)
            if nodes:
                decisions.append(room.start(job, nodes))
        return decisions


def main(jobs=600, seed=1):
    cluster, profile = preset("mixed-gpu")
    trace = generate("mixed-gpu", seed=seed, jobs=jobs, load=1.2)
    policies = {"own": ShortestOnFastest(), "fcfs": named("fcfs"), "sjf+easy": named("sjf+easy")}
    print(f"{'policy':10} {'wait_mean_s':>12} {'jct_mean_s':>12} {'energy_kwh':>12}")
    for name, policy in policies.items():
        backend = SimBackend(trace, cluster, profile)
        run(backend, policy)
        seen = backend.snapshot()
        got = measure(Result(name, seed, trace, cluster, seen.state, seen.totals))
        kwh = got["energy_j"] / 3.6e6
        print(f"{name:10} {got['wait_mean_s']:12.0f} {got['jct_mean_s']:12.0f} {kwh:12.0f}")


if __name__ == "__main__":
    main()
