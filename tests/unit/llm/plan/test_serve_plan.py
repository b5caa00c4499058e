"""Ways to serve: the cache fits, latency is kept, and what cannot be served says what would."""

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.plan.serve_plan import (
    MEMORY_SHARE,
    fewest,
    priced,
    replicas,
    serve_planned,
    serve_question,
)
from trimtab.llm.spec.specs import gpu, model


def served(name="llama-3-70b", kind="H100", gpus=8, top=5, **more):
    return serve_planned(serve_question(model(name), gpu(kind), gpus, **more), top)


def test_weights_and_cache_of_every_way_fit():
    found = served(top=99)
    assert len(found.rows) > 3
    used_b = found.rows["weights_b"] + found.rows["cache_b"]
    assert (used_b < MEMORY_SHARE * 80e9).all()
    assert (found.rows["batch"] <= found.rows["max_batch"]).all()
    assert (found.rows["p_fit"] >= 0.9).all()


def test_the_first_way_makes_the_most_tokens_of_all_that_keep_the_limits():
    question = serve_question(model("llama-3-70b"), gpu("H100"), 8, slo_s=0.05, ttft_s=1.0)
    rows = priced(question, replicas(question))
    kept = rows[(rows["p_fit"] >= 0.9) & (rows["token_s"] <= 0.05) & (rows["ttft_s"] <= 1.0)]
    best = serve_planned(question).rows[0]
    assert best["tokens_s"] >= kept["tokens_s"].max() * 0.99
    assert best["token_s"] <= 0.05


def test_a_tighter_limit_costs_throughput():
    loose, tight = served(slo_s=0.2), served(slo_s=0.03)
    assert tight.rows["tokens_s"][0] < loose.rows["tokens_s"][0]
    assert tight.rows["batch"][0] * tight.rows["replicas"][0] < 1e4


def test_replicas_use_the_gpus_and_whole_nodes():
    question = serve_question(model("llama-3-8b"), gpu("H100"), 24)
    ways = replicas(question)
    assert (1, 1) in ways and (8, 1) in ways and (8, 3) in ways
    assert all(8 % (tp * pp) == 0 or tp * pp % 8 == 0 for tp, pp in ways)


def test_eight_bit_weights_take_half_the_memory():
    half = served(precision="fp8", tp=4, pp=1).rows["weights_b"][0]
    full = served(precision="bf16", tp=4, pp=1).rows["weights_b"][0]
    assert half == pytest.approx(full / 2, rel=0.05)


def test_intervals_hold_the_prediction():
    found = served()
    low, high = found.interval("tokens_s")
    assert low < found.rows["tokens_s"][0] < high
    assert high / low == pytest.approx(np.exp(2 * 1.645 * found.spread))


def test_a_model_too_large_names_the_fewest_gpus_and_those_hold_it():
    question = serve_question(model("llama-3.1-405b"), gpu("H100"), 8)
    with pytest.raises(PlanError, match="cannot be served on 8xH100") as refused:
        serve_planned(question)
    count = fewest(question)
    assert f"{count} GPUs of this kind are the fewest" in str(refused.value)
    assert count > 8
    assert served("llama-3.1-405b", gpus=count, slo_s=1.0).rows["p_fit"][0] >= 0.9


def test_latency_that_nothing_keeps_names_the_fastest():
    with pytest.raises(PlanError, match=r"keeps 1 ms a token: the fastest takes \d+ ms"):
        served(slo_s=0.001)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tp": 3}, "heads=64 cannot be split over tp=3; take a tp of 1, 2, 4, 8"),
        ({"prompt": 0}, "prompt=0 is below 1"),
        ({"slo_s": -1.0}, "slo-ms=-1000 is not a usable number"),
        ({"precision": "int3"}, "precision='int3' is not served"),
    ],
)
def test_a_wish_that_cannot_be_served_is_refused(options, sentence):
    with pytest.raises(PlanError, match=sentence):
        served(**options)


def test_a_busy_host_slows_tokens():
    idle = serve_question(model("llama-3-8b"), gpu("H100"), 1)
    busy = serve_question(model("llama-3-8b"), gpu("H100"), 1, cpu_load=0.9)
    slow, fast = (priced(q, [(1, 1)])["token_s"] for q in (busy, idle))
    assert (slow > fast).all()
