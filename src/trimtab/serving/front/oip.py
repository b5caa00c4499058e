"""Open Inference Protocol v2: bytes to tensors and back, JSON and binary, for every front.

A body is JSON, or JSON followed by the raw bytes of the tensors that give a `binary_data_size`.
Everything a client can get wrong raises ServeError with the field, the value and the remedy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.front.tensors import brief, from_bytes, from_list, listed, raw, read_shape
from trimtab.serving.nouns import Answer, Metadata, Request, Spec

UNSUPPORTED = ("shared_memory_region", "classification", "sequence_id")
EXTENSIONS = ["binary_tensor_data", "parameters", "schedule_policy"]
NONE: Mapping[str, Any] = {}
KNOWN_MOST, KNOWN_BYTES = 64, 2048  # requests kept, and the longest of them


class Layout(NamedTuple):
    """What the JSON of a request says, but for the numbers in it."""

    inputs: list[tuple[Spec, tuple[int, ...], int | None, Any]]  # shape, binary bytes, JSON data
    outputs: tuple[str, ...]
    binary: tuple[bool, ...]  # which of them come back so
    request_id: str
    parameters: Mapping[str, Any]


def read_request(
    model: Metadata,
    body: bytes,
    json_bytes: int | None,
    now_s: float,
    known: dict[bytes, Layout] | None = None,
) -> tuple[Request, tuple[bool, ...]]:
    """Decode one HTTP body; also say which of the wanted outputs must come back as binary.

    `json_bytes` is the Inference-Header-Content-Length: None where the client sent none. `known`
    keeps what was read of the model's requests: many differ in nothing but their binary tensors.
    """
    text = b"" if json_bytes is None or known is None else body[:json_bytes]
    layout = known.get(text) if known and text else None
    if layout is None:
        layout = read_layout(model, body, json_bytes)
        if known is not None and 0 < len(text) <= KNOWN_BYTES and not has_data(layout):
            if len(known) == KNOWN_MOST:
                known.clear()
            known[text] = layout
    at = len(body) if json_bytes is None else json_bytes
    inputs: dict[str, Array] = {}
    for spec, shape, size, data in layout.inputs:
        if size is None:
            inputs[spec.name] = from_list(spec, shape, data)
            continue
        check_size(spec, size, len(body) - at)
        inputs[spec.name] = from_bytes(spec, shape, body, at, size)
        at += size
    if at != len(body):
        raise ServeError(
            f"the body has {len(body) - at} bytes after the last binary tensor;"
            " let binary_data_size of the inputs add up to them"
        )
    names, request_id, parameters = layout.outputs, layout.request_id, layout.parameters
    return request_of(inputs, names, request_id, parameters, now_s), layout.binary


def has_data(layout: Layout) -> bool:
    return any(size is None for _, _, size, _ in layout.inputs)


def read_layout(model: Metadata, body: bytes, json_bytes: int | None) -> Layout:
    """Read the JSON of a request."""
    head = read_json(body, json_bytes)
    parameters = mapping(head.get("parameters"), "parameters")
    request_id = head.get("id", "")
    if not isinstance(request_id, str):
        raise ServeError(f"id is {brief(request_id)}; send a string")
    inputs: list[tuple[Spec, tuple[int, ...], int | None, Any]] = []
    seen: set[str] = set()
    at = len(body) if json_bytes is None else json_bytes
    for entry in entries(head.get("inputs"), "inputs"):
        spec = input_spec(model, entry.get("name"), seen)
        seen.add(spec.name)
        own = mapping(entry.get("parameters"), f"{spec.name}: parameters")
        shape = read_shape(spec, entry.get("datatype"), entry.get("shape"))
        size = own.get("binary_data_size") if own else None
        if size is None:
            refuse_unsupported(own, spec.name)
        else:
            check_size(spec, size, len(body) - at)
            if "data" in entry:
                raise ServeError(f"{spec.name}: has data and binary_data_size; send one of them")
            at += size
        inputs.append((spec, shape, size, entry.get("data")))
    check_complete(model, seen)
    names, binary = read_outputs(model, head.get("outputs"), parameters)
    return Layout(inputs, names, binary, request_id, parameters)


def request_of(
    inputs: dict[str, Array],
    outputs: tuple[str, ...],
    request_id: str,
    parameters: Mapping[str, Any],
    now_s: float,
    deadline_s: float = math.inf,
) -> Request:
    """A request with its deadline and priority, read from its parameters.

    `timeout` (microseconds, 0 = none) and `deadline_ms` count from `now_s`; the nearest one holds.
    """
    if not parameters:
        return Request(inputs, outputs, request_id, "", now_s, deadline_s)
    refuse_unsupported(parameters, "parameters")
    timeout_us = number(parameters, "timeout", whole=True)
    if timeout_us:
        deadline_s = min(deadline_s, now_s + timeout_us * 1e-6)
    if "deadline_ms" in parameters:
        deadline_ms = number(parameters, "deadline_ms", whole=False)
        if deadline_ms == 0:
            raise ServeError("parameters: deadline_ms is 0; send milliseconds above 0 or leave it")
        deadline_s = min(deadline_s, now_s + deadline_ms * 1e-3)
    priority = int(number(parameters, "priority", whole=True))
    return Request(inputs, outputs, request_id, "", now_s, deadline_s, priority, parameters)


def number(parameters: Mapping[str, Any], key: str, whole: bool) -> float:
    """The parameter `key` as a number that is not negative; 0 where absent."""
    value = parameters.get(key, 0)
    fits = isinstance(value, int) or (isinstance(value, float) and not whole)
    if not fits or isinstance(value, bool) or not 0 <= value < 2**63:
        kind = "a whole number" if whole else "a number"
        raise ServeError(f"parameters: {key} is {brief(value)}; send {kind} of 0 or more")
    return float(value)


def refuse_unsupported(parameters: Mapping[str, Any], where: str) -> None:
    """Raise for an extension that would change the answer if it were ignored."""
    for key in UNSUPPORTED:
        if parameters.get(key):
            raise ServeError(f"{where}: {key} is not supported; leave it out and send tensors")


def read_json(body: bytes, json_bytes: int | None) -> dict[str, Any]:
    """The JSON object at the start of the body."""
    if json_bytes is not None and not 0 < json_bytes <= len(body):
        raise ServeError(
            f"Inference-Header-Content-Length is {json_bytes} and the body has {len(body)} bytes;"
            " send the length of the JSON part"
        )
    try:
        head = orjson.loads(body if json_bytes is None else memoryview(body)[:json_bytes])
    except orjson.JSONDecodeError as error:
        raise ServeError(
            f"the body is not JSON ({error}); send an inference request, and"
            " Inference-Header-Content-Length where binary tensors follow it"
        ) from None
    if not isinstance(head, dict):
        raise ServeError(f"the body is {brief(head)}; send a JSON object with inputs")
    return head


def entries(value: Any, where: str) -> list[dict[str, Any]]:
    """A list of JSON objects that is not empty."""
    if not isinstance(value, list) or not value or not all(type(item) is dict for item in value):
        raise ServeError(f"{where} is {brief(value)}; send a list of objects with a name")
    return value


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """A JSON object, empty where absent."""
    if value is None:
        return NONE
    if not isinstance(value, dict):
        raise ServeError(f"{where} is {brief(value)}; send an object")
    return value


def input_spec(model: Metadata, name: Any, seen: Container[str]) -> Spec:
    """The model's input `name`, which no earlier entry gave."""
    spec = model.input_of.get(name) if isinstance(name, str) else None
    if spec is None:
        known = ", ".join(model.input_of)
        raise ServeError(f"inputs: name is {brief(name)}; {model.name} takes: {known}")
    if name in seen:
        raise ServeError(f"inputs: {name} is given twice; send it once")
    return spec


def check_complete(model: Metadata, inputs: Collection[str]) -> None:
    """Raise where an input of the model is missing."""
    if len(inputs) < len(model.inputs):
        missing = ", ".join(name for name in model.input_of if name not in inputs)
        raise ServeError(f"inputs: {missing} is missing; {model.name} needs every input")


def check_size(spec: Spec, size: Any, left_bytes: int) -> None:
    """Raise where a binary tensor does not fit what follows the JSON."""
    if type(size) is not int or not 0 <= size <= left_bytes:
        raise ServeError(
            f"{spec.name}: binary_data_size is {brief(size)} and {left_bytes} bytes follow;"
            " send the tensor's bytes after the JSON, and Inference-Header-Content-Length"
        )


def read_outputs(
    model: Metadata, value: Any, parameters: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """The names of the outputs wanted, and which of them as binary."""
    default = parameters.get("binary_data_output", False)
    if not isinstance(default, bool):
        raise ServeError(f"parameters: binary_data_output is {brief(default)}; send true or false")
    if not value:
        return model.output_names, (default,) * len(model.output_names)
    names: list[str] = []
    binary: list[bool] = []
    for entry in entries(value, "outputs"):
        own = mapping(entry.get("parameters"), "outputs: parameters")
        refuse_unsupported(own, "outputs")
        wanted = own.get("binary_data", default)
        if not isinstance(wanted, bool):
            raise ServeError(f"outputs: binary_data is {brief(wanted)}; send true or false")
        names.append(output_name(model, entry.get("name"), names))
        binary.append(wanted)
    return tuple(names), tuple(binary)


def output_name(model: Metadata, name: Any, seen: Sequence[str]) -> str:
    """The name of one of the model's outputs, which no earlier entry asked for."""
    if not isinstance(name, str) or name not in model.output_of:
        known = ", ".join(model.output_of)
        raise ServeError(f"outputs: name is {brief(name)}; {model.name} gives: {known}")
    if name in seen:
        raise ServeError(f"outputs: {name} is asked for twice; ask once")
    return name


def write_answer(
    model: Metadata, request: Request, binary: Sequence[bool], answer: Answer
) -> tuple[list[bytes | memoryview], int | None]:
    """The body of an answer in pieces, and the length of its JSON part if binary follows."""
    entries: list[dict[str, Any]] = []
    pieces: list[bytes | memoryview] = [b""]
    for name, as_binary in zip(request.outputs, binary):
        spec, tensor = model.output_of[name], answer.outputs[name]
        entry: dict[str, Any] = {"name": name, "datatype": spec.datatype, "shape": tensor.shape}
        if as_binary:
            piece = raw(spec, tensor)
            entry["parameters"] = {"binary_data_size": memoryview(piece).nbytes}
            pieces.append(piece)
        else:
            entry["data"] = listed(spec, tensor)
        entries.append(entry)
    head: dict[str, Any] = {
        "model_name": model.name,
        "model_version": request.version or model.versions[-1],
        "outputs": entries,
    }
    if request.request_id:
        head["id"] = request.request_id
    if answer.parameters:
        head["parameters"] = dict(answer.parameters)
    pieces[0] = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    return pieces, len(pieces[0]) if any(binary) else None


def error_body(reason: str) -> bytes:
    """The JSON body of every error."""
    return orjson.dumps({"error": reason})


def model_body(model: Metadata) -> bytes:
    """The JSON body of the model's metadata."""
    tensors = [
        [{"name": s.name, "datatype": s.datatype, "shape": list(s.shape)} for s in side]
        for side in (model.inputs, model.outputs)
    ]
    return orjson.dumps(
        {
            "name": model.name,
            "versions": list(model.versions),
            "platform": model.platform,
            "inputs": tensors[0],
            "outputs": tensors[1],
        }
    )


def server_body(version: str) -> bytes:
    """The JSON body of the server's metadata."""
    return orjson.dumps({"name": "trimtab", "version": version, "extensions": EXTENSIONS})
