"""A claim, its evidence and its JSON."""

import json
import math

from trimtab.claims import Claim, as_rows, finite, listed


def test_a_claim_is_unmeasured_until_it_says_otherwise():
    assert as_rows([Claim("it is fast"), Claim("it is small", True, "12 MB")]) == [
        {"claim": "it is fast", "holds": None, "evidence": "not measured in this run"},
        {"claim": "it is small", "holds": True, "evidence": "12 MB"},
    ]


def test_evidence_lists_four_texts_and_counts_the_rest():
    assert listed([]) == ""
    assert listed(["a", "b", "c", "d"]) == "a; b; c; d"
    assert listed(["a", "b", "c", "d", "e", "f"]) == "a; b; c; d; and 2 more"


def test_what_is_no_number_is_null_in_json():
    values = (1.5, math.nan, (math.inf, 3), "text", None)
    assert json.dumps(finite(values), allow_nan=False) == '[1.5, null, [null, 3], "text", null]'
