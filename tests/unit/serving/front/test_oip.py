"""Bytes to tensors and back: every datatype, both forms, and every mistake a client can make."""

import json
import math
import struct

import numpy as np
import pytest

pytest.importorskip("orjson")

from trimtab.errors import ServeError
from trimtab.serving.front import tensors
from trimtab.serving.front.oip import KNOWN_BYTES, KNOWN_MOST, read_request, write_answer
from trimtab.serving.front.tensors import from_bytes, from_list, raw
from trimtab.serving.nouns import DTYPES, Answer, Metadata, Spec, ZeroFleet, stranger

IMAGE = Metadata(
    "slim", (Spec("image", "FP32", (-1, 2, 3)),), (Spec("logits", "FP32", (-1, 4)),), ("1", "2")
)
VALUES = {
    "BOOL": [True, False, True],
    "FP16": [0.5, -2.0, 65504.0],
    "FP32": [0.1, -2.5, 3e38],
    "FP64": [0.1, -2.5, 1e300],
    "BF16": [0.5, -2.0, 3.0],
    "BYTES": [b"", b"a", "é".encode()],
}
for bits in (8, 16, 32, 64):
    VALUES[f"INT{bits}"] = [-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1]
    VALUES[f"UINT{bits}"] = [0, 1, 2**bits - 1]


def model_of(datatype: str) -> Metadata:
    spec = (Spec("x", datatype, (-1,)),)
    return Metadata("echo", spec, (Spec("y", datatype, (-1,)),))


def body(*, binary: bytes = b"", **change: object) -> tuple[bytes, int | None]:
    """A request for IMAGE, valid unless `change` says otherwise, and its JSON length."""
    entry: dict = {"name": "image", "shape": [1, 2, 3], "datatype": "FP32"}
    if binary:
        entry["parameters"] = {"binary_data_size": len(binary)}
    else:
        entry["data"] = [1, 2, 3, 4, 5, 6]
    entry |= change.pop("entry", {})
    head = json.dumps({"inputs": [entry], **change}).encode()
    return head + binary, len(head) if binary else None


def read(*, binary: bytes = b"", **change: object):
    return read_request(IMAGE, *body(binary=binary, **change), 100.0)


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_survives_the_binary_form(datatype: str):
    model = model_of(datatype)
    dtype = DTYPES[datatype]
    sent = np.array(VALUES[datatype], dtype)
    wire = bytes(raw(model.inputs[0], sent))
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "datatype": datatype,
                    "shape": [3],
                    "parameters": {"binary_data_size": len(wire)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    request, binary = read_request(model, head + wire, len(head), 0.0)
    assert request.inputs["x"].dtype == dtype and list(request.inputs["x"]) == list(sent)
    assert request.inputs["x"].flags.aligned

    pieces, json_bytes = write_answer(model, request, binary, Answer({"y": request.inputs["x"]}))
    assert json_bytes == len(pieces[0])
    assert json.loads(pieces[0])["outputs"][0]["parameters"] == {"binary_data_size": len(wire)}
    assert bytes(pieces[1]) == wire


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_survives_the_json_form(datatype: str):
    model = model_of(datatype)
    values = [v.decode() if isinstance(v, bytes) else v for v in VALUES[datatype]]
    head = {"inputs": [{"name": "x", "datatype": datatype, "shape": [3], "data": values}]}
    request, binary = read_request(model, json.dumps(head).encode(), None, 0.0)
    assert list(request.inputs["x"]) == list(np.array(VALUES[datatype], DTYPES[datatype]))

    pieces, json_bytes = write_answer(model, request, binary, Answer({"y": request.inputs["x"]}))
    assert json_bytes is None and len(pieces) == 1
    returned = json.loads(pieces[0])["outputs"][0]["data"]
    if datatype == "BYTES":
        assert returned == values
    else:
        assert list(np.array(returned, DTYPES[datatype])) == list(request.inputs["x"])


def test_bytes_are_framed_by_four_little_endian_length_bytes():
    spec = Spec("x", "BYTES", (-1,))
    wire = struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0)
    assert from_bytes(spec, (2,), wire, 0, len(wire)).tolist() == [b"ab", b""]


def test_bf16_rounds_half_to_even():
    # 1 + 2^-8 lies half way between 1 and 1 + 2^-7; 1 has the even last bit
    spec = Spec("x", "BF16", (-1,))
    wire = raw(spec, np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32))
    assert from_bytes(spec, (2,), bytes(wire), 0, 4).tolist() == [1.0, 1 + 2**-6]


def test_nested_and_flat_data_are_the_same_tensor():
    nested, _ = read(entry={"data": [[[1, 2, 3], [4, 5, 6]]]})
    flat, _ = read()
    assert nested.inputs["image"].tolist() == flat.inputs["image"].tolist()
    assert flat.inputs["image"].shape == (1, 2, 3)


def test_an_aligned_binary_tensor_is_not_copied():
    wire = b"\0" * 8 + np.arange(6, dtype=np.float32).tobytes()
    tensor = from_bytes(Spec("x", "FP32", (-1,)), (6,), wire, 8, 24)
    assert np.shares_memory(tensor, np.frombuffer(wire, np.uint8))


def test_timeout_is_microseconds_and_the_nearest_deadline_holds():
    assert read()[0].deadline_s == math.inf
    assert read(parameters={"timeout": 0})[0].deadline_s == math.inf
    assert read(parameters={"timeout": 250_000})[0].deadline_s == pytest.approx(100.25)
    both = {"timeout": 250_000, "deadline_ms": 40.5, "priority": 3}
    request, _ = read(parameters=both)
    assert (request.deadline_s, request.priority) == (pytest.approx(100.0405), 3)
    assert request.arrived_s == 100.0


def test_one_output_may_be_binary_and_the_request_sets_the_default():
    two = Metadata("two", IMAGE.inputs, (*IMAGE.outputs, Spec("label", "INT64", (-1,))))
    wanted = [{"name": "label"}, {"name": "logits", "parameters": {"binary_data": True}}]
    wire, json_bytes = body(outputs=wanted)
    request, binary = read_request(two, wire, json_bytes, 0.0)
    assert (request.outputs, binary) == (("label", "logits"), (False, True))

    wire, json_bytes = body(outputs=wanted[:1], parameters={"binary_data_output": True})
    assert read_request(two, wire, json_bytes, 0.0)[1] == (True,)

    answer = Answer({"label": np.array([7]), "logits": np.ones((1, 4))}, parameters={"width": 0.5})
    pieces, json_bytes = write_answer(two, request, binary, answer)
    head = json.loads(pieces[0])
    assert head["outputs"][0]["data"] == [7] and "data" not in head["outputs"][1]
    assert bytes(pieces[1]) == np.ones(4, np.float32).tobytes()
    assert head["parameters"] == {"width": 0.5} and "id" not in head


def test_the_id_is_echoed():
    request, binary = read(id="r-1")
    pieces, _ = write_answer(IMAGE, request, binary, Answer({"logits": np.zeros((1, 4))}))
    assert json.loads(pieces[0])["id"] == "r-1"


WRONG = [
    ({"entry": {"shape": [1, 2, 4]}}, r"image: shape is \[1, 2, 4\]; send \[-1, 2, 3\]"),
    ({"entry": {"shape": [0, 2, 3]}}, r"shape is \[0, 2, 3\]"),
    ({"entry": {"shape": [True, 2, 3]}}, "shape is"),
    ({"entry": {"shape": "123"}}, "shape is '123'"),
    ({"entry": {"shape": None}}, "shape is None"),
    ({"entry": {"datatype": "FP64"}}, "image: datatype is 'FP64'; send FP32"),
    ({"entry": {"datatype": "FLOAT"}}, "datatype is 'FLOAT'"),
    ({"entry": {"name": "picture"}}, "name is 'picture'; slim takes: image"),
    ({"entry": {"name": ["image"]}}, r"name is \['image'\]"),
    ({"entry": {"data": [1, 2]}}, r"holds 2 values; shape \[1, 2, 3\] needs 6"),
    ({"entry": {"data": [[1, 2, 3], [4, 5, 6]]}}, "not nested as shape"),
    ({"entry": {"data": [[[1, 2, 3], [4, 5]]]}}, "not nested as shape"),
    ({"entry": {"data": [[[1, 2, 3], 4]]}}, "not nested as shape"),
    ({"entry": {"data": [1, 2, 3, 4, 5, "6"]}}, "data '6' is not FP32"),
    ({"entry": {"data": [1, 2, 3, 4, 5, None]}}, "data None is not FP32"),
    ({"entry": {"data": [1, 2, 3, 4, 5, 1e39]}}, r"inf at \[0, 1, 2\]"),
    ({"entry": {"data": "abc"}}, "data is 'abc'"),
    ({"entry": {"data": None}}, "data is None"),
    ({"entry": {"parameters": {"shared_memory_region": "r"}}}, "shared_memory_region is not"),
    ({"entry": {"parameters": [1]}}, r"parameters is \[1\]"),
    ({"entry": {"parameters": {"binary_data_size": 24}}}, "binary_data_size is 24 and 0 bytes"),
    ({"inputs": []}, r"inputs is \[\]"),
    ({"inputs": [3]}, r"inputs is \[3\]"),
    ({"id": 7}, "id is 7; send a string"),
    ({"outputs": [{"name": "probs"}]}, "name is 'probs'; slim gives: logits"),
    ({"outputs": [{"name": "logits"}] * 2}, "logits is asked for twice"),
    ({"outputs": {"name": "logits"}}, "outputs is"),
    ({"outputs": [{"name": "logits", "parameters": {"classification": 3}}]}, "classification is"),
    ({"outputs": [{"name": "logits", "parameters": {"binary_data": 1}}]}, "binary_data is 1"),
    ({"parameters": {"binary_data_output": "yes"}}, "binary_data_output is 'yes'"),
    ({"parameters": {"timeout": -1}}, "timeout is -1; send a whole number"),
    ({"parameters": {"timeout": "5"}}, "timeout is '5'"),
    ({"parameters": {"timeout": True}}, "timeout is True"),
    ({"parameters": {"deadline_ms": 0}}, "deadline_ms is 0"),
    ({"parameters": {"deadline_ms": -5.0}}, "deadline_ms is -5.0"),
    ({"parameters": {"priority": 1.5}}, "priority is 1.5"),
    ({"parameters": {"sequence_id": 4}}, "sequence_id is not supported"),
    ({"parameters": 4}, "parameters is 4"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_mistake_is_named_with_its_value(change: dict, message: str):
    with pytest.raises(ServeError, match=message):
        read(**change)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_float_that_is_not_finite_is_refused_with_its_place(odd: float):
    tensor = np.zeros(6, np.float32)
    tensor[4] = odd
    with pytest.raises(ServeError, match=rf"image: {odd} at \[0, 1, 1\]"):
        read(binary=tensor.tobytes())


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("INT8", 128),
        ("INT8", -129),
        ("UINT8", -1),
        ("UINT8", 256),
        ("INT32", 1.0),
        ("UINT64", 2**64),
    ]
    + [("INT64", None), ("BOOL", 1), ("BYTES", 5), ("FP16", 1e6)],
)
def test_json_values_are_never_converted_in_silence(datatype: str, value: object):
    spec = Spec("x", datatype, (-1,))
    with pytest.raises(ServeError, match="x: "):
        from_list(spec, (1,), [value])


def test_the_wrong_number_of_bytes_is_refused():
    with pytest.raises(ServeError, match=r"image: 20 bytes for shape \[1, 2, 3\].*send 24"):
        read(binary=b"\0" * 20)
    wire, json_bytes = body(binary=b"\0" * 24)
    with pytest.raises(ServeError, match="has 3 bytes after the last"):
        read_request(IMAGE, wire + b"abc", json_bytes, 0.0)
    with pytest.raises(ServeError, match="binary_data_size is 24 and 20 bytes follow"):
        read_request(IMAGE, wire[:-4], json_bytes, 0.0)


@pytest.mark.parametrize(
    ("wire", "json_bytes", "message"),
    [
        (b"", None, "not JSON"),
        (b"{", None, "not JSON"),
        (b"[1]", None, r"the body is \[1\]"),
        (b'{"inputs": NaN}', None, "not JSON"),
        (b"[" * 100_000, None, "not JSON"),
        (b"\xff\xfe{}", None, "not JSON"),
        (b"{}", None, "inputs is None"),
        (b"{}", 0, "Inference-Header-Content-Length is 0"),
        (b"{}", 3, "Inference-Header-Content-Length is 3 and the body has 2"),
    ],
)
def test_a_body_that_is_no_request_is_refused(wire: bytes, json_bytes: int | None, message: str):
    with pytest.raises(ServeError, match=message):
        read_request(IMAGE, wire, json_bytes, 0.0)


def test_data_and_binary_data_at_once_are_refused():
    with pytest.raises(ServeError, match="data and binary_data_size"):
        read(binary=b"\0" * 24, entry={"data": [1]})


@pytest.mark.parametrize(
    "wire",
    [b"", b"\x05\0\0\0abc", b"\x01\0\0\0a\x01\0", b"\xff\xff\xff\xffa", b"\0\0\0\0" * 3],
)
def test_bytes_elements_that_do_not_add_up_are_refused(wire: bytes):
    with pytest.raises(ServeError, match="do not hold 2 BYTES elements"):
        from_bytes(Spec("x", "BYTES", (-1,)), (2,), wire, 0, len(wire))


def test_too_many_bytes_elements_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tensors, "BYTES_LIMIT", 2)
    spec, wire = Spec("x", "BYTES", (-1,)), b"\0\0\0\0" * 3
    with pytest.raises(ServeError, match="3 BYTES elements; send at most 2"):
        from_bytes(spec, (3,), wire, 0, len(wire))
    with pytest.raises(ServeError, match="3 BYTES elements; send at most 2"):
        from_list(spec, (3,), ["a", "b", "c"])


def test_a_missing_or_doubled_input_is_refused():
    two = Metadata("two", (*IMAGE.inputs, Spec("mask", "BOOL", (-1,))), IMAGE.outputs)
    wire, json_bytes = body()
    with pytest.raises(ServeError, match="mask is missing"):
        read_request(two, wire, json_bytes, 0.0)
    entry = json.loads(wire)["inputs"][0]
    with pytest.raises(ServeError, match="image is given twice"):
        read_request(two, json.dumps({"inputs": [entry, entry]}).encode(), None, 0.0)


def test_an_output_json_cannot_say_is_an_error_that_names_binary():
    request, binary = read()
    with pytest.raises(ServeError, match=r"logits is not finite.*binary_data"):
        write_answer(IMAGE, request, binary, Answer({"logits": np.full((1, 4), np.nan)}))
    model = model_of("BYTES")
    request.outputs = ("y",)
    with pytest.raises(ServeError, match="y is not UTF-8"):
        write_answer(model, request, (False,), Answer({"y": np.array([b"\xff"], object)}))


def test_metadata_with_an_unknown_datatype_or_no_version_is_refused():
    with pytest.raises(ServeError, match="x has datatype 'FP31'"):
        model_of("FP31")
    with pytest.raises(ServeError, match="versions is empty"):
        Metadata("m", (), (), ())


def test_a_stranger_is_told_what_is_served():
    assert stranger(IMAGE, "slim", "") == "" == stranger(IMAGE, "slim", "2")
    assert "ask for 'slim'" in stranger(IMAGE, "fat", "")
    assert "no version '3'; ask for one of: 1, 2" in stranger(IMAGE, "slim", "3")


def test_the_zero_fleet_answers_at_once_in_the_models_shapes():
    answers = []
    request, _ = read(entry={"shape": [2, 2, 3], "data": [0] * 12})
    ZeroFleet(IMAGE).submit(request, answers.append)()
    assert answers[0].outputs["logits"].tolist() == [[0.0] * 4] * 2


def test_no_change_of_a_request_raises_anything_but_serve_error():
    rng = np.random.default_rng(7)
    odd = [None, True, -1, 2**70, 1.5, "", "FP32", [], [[]], [None], {}, [1, [2]], [2**40, 2**40]]
    odd += [{"binary_data_size": 24}, {"binary_data_size": -1}, [{}], [[1, 2], 3]]

    def changed(value: object) -> object:
        if isinstance(value, dict) and value and rng.random() < 0.8:
            key = list(value)[rng.integers(len(value))]
            return {**value, key: changed(value[key])}
        if isinstance(value, list) and value and rng.random() < 0.8:
            place = rng.integers(len(value))
            return [*value[:place], changed(value[place]), *value[place + 1 :]]
        return odd[rng.integers(len(odd))]

    wire, _ = body(id="a", outputs=[{"name": "logits"}], parameters={"timeout": 1, "priority": 1})
    refused = 0
    for _ in range(1500):
        change = json.dumps(changed(json.loads(wire))).encode()
        try:
            read_request(IMAGE, change, None, 0.0)
        except ServeError:
            refused += 1
    assert refused > 750


def test_a_request_that_was_read_before_is_read_again_from_its_tensors_alone():
    known: dict = {}
    pixels = np.arange(6, dtype="<f4")
    first, size = body(binary=pixels.tobytes(), parameters={"deadline_ms": 50}, id="a")
    for turn in range(2):
        again = first[:size] + (pixels + turn).tobytes()
        request, _ = read_request(IMAGE, again, size, 10.0 * turn, known)
        assert request.inputs["image"].ravel().tolist() == (pixels + turn).tolist()
        assert (request.request_id, request.deadline_s) == ("a", 10.0 * turn + 0.05)
        assert list(known) == [first[:size]]
    for wrong in (first[:-4], first + b"1234"):
        with pytest.raises(ServeError, match="bytes"):
            read_request(IMAGE, wrong, size, 0.0, known)
    broken = first[:size] + np.full(6, np.nan, "<f4").tobytes()
    with pytest.raises(ServeError, match="finite"):
        read_request(IMAGE, broken, size, 0.0, known)


def test_only_few_and_short_requests_without_numbers_are_remembered():
    known: dict = {}
    wire = np.zeros(6, "<f4").tobytes()
    for number in range(2 * KNOWN_MOST):
        read_request(IMAGE, *body(binary=wire, id=str(number)), 0.0, known)
        assert 0 < len(known) <= KNOWN_MOST
    known.clear()
    read_request(IMAGE, *body(), 0.0, known)
    read_request(IMAGE, *body(binary=wire, id="x" * KNOWN_BYTES), 0.0, known)
    with pytest.raises(ServeError, match="FP99"):
        read_request(IMAGE, *body(binary=wire, entry={"datatype": "FP99"}), 0.0, known)
    assert known == {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_huge_numbers_are_finite_and_others_are_not(value: float):
    pixels = np.full(6, 3e38, "f4")
    assert tensors.all_finite(pixels)
    pixels[3] = value
    assert not tensors.all_finite(pixels)
