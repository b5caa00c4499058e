"""The gRPC front over real sockets: every method, typed and raw tensors, refusals and drain."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("orjson")
pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")
pytest.importorskip("httptools")  # tests.fronts has the HTTP client too

import grpc
from tests.fronts import LIMIT_S, MODEL, Doubling, Held, Refusing, until

from trimtab.errors import ServeError
from trimtab.serving.front.grpc_front import CONTENTS, GrpcFront
from trimtab.serving.front.messages import MESSAGES, SERVICE
from trimtab.serving.front.tensors import raw
from trimtab.serving.nouns import DTYPES, Answer, Metadata, Spec, Why, ZeroFleet

Call = Callable[..., Any]


def play(
    scenario: Callable[[GrpcFront, Call], Awaitable[None]],
    fleet: ZeroFleet | None = None,
    **limits: object,
) -> None:
    """Run a scenario against a front on a free port of this machine."""

    async def run() -> None:
        front = GrpcFront(fleet or Doubling(MODEL), **limits)
        await front.start("127.0.0.1", 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{front.port}") as channel:

            def call(method: str, message: Any = None, **more: object) -> Any:
                kind = MESSAGES[method + "Request"]
                stub = channel.unary_unary(
                    f"/{SERVICE}/{method}",
                    kind.SerializeToString,
                    MESSAGES[method + "Response"].FromString,
                )
                return stub(kind() if message is None else message, **more)

            call.channel = channel
            try:
                await asyncio.wait_for(scenario(front, call), LIMIT_S)
            finally:
                await front.drain(limit_s=0.1)

    asyncio.run(run())


def request(values: object = (1.0, 2.0), **change: object) -> Any:
    """A raw request for MODEL, valid unless `change` says otherwise."""
    return MESSAGES["ModelInferRequest"](
        **{
            "model_name": "slim net",
            "id": "r",
            "inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 2]}],
            "raw_input_contents": [np.float32(values).tobytes()],
            **change,
        }
    )


def fault(message: Any, fleet: ZeroFleet | None = None) -> tuple[Any, str, dict[str, str]]:
    """The code, details and trailer of a call that fails."""
    found = []

    async def scenario(front: GrpcFront, call: Call) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call("ModelInfer", message)
        error = caught.value
        found.append((error.code(), error.details(), dict(error.trailing_metadata() or ())))

    play(scenario, fleet)
    return found[0]


def test_health_and_metadata_are_served():
    async def scenario(front: GrpcFront, call: Call) -> None:
        assert (await call("ServerLive")).live
        assert (await call("ServerReady")).ready
        assert (await call("ModelReady", MESSAGES["ModelReadyRequest"](name="slim net"))).ready
        server = await call("ServerMetadata")
        assert (server.name, server.version) == ("trimtab", "9")
        assert "binary_tensor_data" in server.extensions
        named = MESSAGES["ModelMetadataRequest"](name="slim net", version="1")
        model = await call("ModelMetadata", named)
        assert list(model.versions) == ["1", "2"] and model.platform == "trimtab"
        assert (model.inputs[0].name, list(model.inputs[0].shape)) == ("image", [-1, 2])
        assert model.outputs[0].datatype == "FP32"
        front.fleet.ready = False
        assert (await call("ServerLive")).live and not (await call("ServerReady")).ready

    play(scenario, version="9")


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata"])
def test_another_model_is_not_found(method: str):
    async def scenario(front: GrpcFront, call: Call) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="'fat' is not served") as caught:
            await call(method, MESSAGES[method + "Request"](name="fat"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    play(scenario)


def test_a_raw_request_gets_a_raw_answer_with_the_fleets_facts():
    async def scenario(front: GrpcFront, call: Call) -> None:
        answer = await call("ModelInfer", request())
        assert (answer.id, answer.model_name, answer.model_version) == ("r", "slim net", "2")
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2.0, 4.0]
        assert list(answer.outputs[0].shape) == [1, 2]
        assert answer.parameters["width"].double_param == 0.5

    play(scenario)


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_goes_in_typed_or_raw(datatype: str):
    spec = Spec("x", datatype, (-1,))
    model = Metadata("echo", (spec,), (Spec("y", datatype, (-1,)),))
    values = {"BOOL": [True, False], "BYTES": [b"a", b"\xff"]}.get(datatype, [1, 2])
    wire = bytes(raw(spec, np.array(values, DTYPES[datatype])))

    class Echo(ZeroFleet):
        def submit(self, request, done):
            done(Answer({"y": request.inputs["x"]}))
            return lambda: None

    async def scenario(front: GrpcFront, call: Call) -> None:
        entry: dict[str, object] = {"name": "x", "datatype": datatype, "shape": [2]}
        forms = [{"inputs": [entry], "raw_input_contents": [wire]}]
        if datatype in CONTENTS:
            typed = {**entry, "contents": {CONTENTS[datatype]: values}}
            forms.append({"inputs": [typed], "raw_input_contents": []})
        for form in forms:
            answer = await call("ModelInfer", request(model_name="echo", **form))
            assert answer.raw_output_contents[0] == wire

    play(scenario, Echo(model))


IMAGE = {"name": "image", "datatype": "FP32", "shape": [1, 2]}
WRONG = [
    ({"values": [np.nan, 1]}, r"image: nan at \[0, 0\]"),
    ({"values": [1]}, r"image: 4 bytes for shape \[1, 2\]"),
    ({"inputs": [{**IMAGE, "shape": [1, 3]}]}, r"shape is \(1, 3\); send \[-1, 2\]"),
    ({"inputs": [{**IMAGE, "datatype": "FP64"}]}, "datatype is 'FP64'; send FP32"),
    ({"inputs": [{**IMAGE, "name": "x"}]}, "name is 'x'; slim net takes: image"),
    ({"inputs": [], "raw_input_contents": []}, "image is missing"),
    ({"inputs": [IMAGE, IMAGE]}, "raw_input_contents has 1 tensors and inputs 2"),
    ({"raw_input_contents": []}, "fp32_contents holds 0 values"),
    ({"outputs": [{"name": "probs"}]}, "name is 'probs'; slim net gives: logits"),
    (
        {"outputs": [{"name": "logits", "parameters": {"classification": {"int64_param": 3}}}]},
        "classification is not supported",
    ),
    ({"parameters": {"timeout": {"int64_param": -4}}}, "timeout is -4"),
    ({"parameters": {"deadline_ms": {"string_param": "5"}}}, "deadline_ms is '5'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_mistake_is_an_invalid_argument_that_names_it(change: dict, message: str):
    code, details, _ = fault(request(**change))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(ServeError, match=message):
        raise ServeError(details)


def test_an_unknown_model_or_version_is_not_found():
    assert fault(request(model_name="fat"))[0] is grpc.StatusCode.NOT_FOUND
    code, details, _ = fault(request(model_version="7"))
    assert code is grpc.StatusCode.NOT_FOUND and "ask for one of: 1, 2" in details


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (Why.BUSY, "RESOURCE_EXHAUSTED"),
        (Why.LATE, "DEADLINE_EXCEEDED"),
        (Why.UNAVAILABLE, "UNAVAILABLE"),
        (Why.FAILED, "INTERNAL"),
    ],
)
def test_a_refusal_of_the_fleet_has_its_code_and_says_when_to_come_back(why: Why, code: str):
    answer = Answer(why=why, reason="queue: 9 wait, limit 8", retry_after_s=1.5)
    got, details, trailer = fault(request(), Refusing(answer))
    assert (got.name, details) == (code, "queue: 9 wait, limit 8")
    assert (trailer["retry-after"], trailer["retry-after-ms"]) == ("2", "1500")


def test_an_answer_that_cannot_be_written_is_internal_and_the_next_call_is_served():
    async def scenario(front: GrpcFront, call: Call) -> None:
        loop, seen = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        with pytest.raises(grpc.aio.AioRpcError, match="the fleet failed: KeyError") as caught:
            await call("ModelInfer", request())
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert isinstance(seen[0], KeyError) and front.in_flight == 0
        assert (await call("ServerLive")).live

    play(scenario, Refusing(Answer({})))


def test_the_calls_deadline_is_the_requests_and_the_nearest_holds():
    async def scenario(front: GrpcFront, call: Call) -> None:
        calls = [call("ModelInfer", request(), timeout=50.0), call("ModelInfer", request())]
        near = {"deadline_ms": {"int64_param": 200}, "priority": {"uint64_param": 2}}
        calls.append(call("ModelInfer", request(parameters=near), timeout=50.0))
        tasks = [asyncio.ensure_future(one) for one in calls]
        await until(lambda: len(fleet.waiting) == 3)
        left = sorted(request.deadline_s - request.arrived_s for request, _ in fleet.waiting)
        assert left[0] == pytest.approx(0.2) and 25 < left[1] < 60 and left[2] > 1e6
        assert sorted(request.priority for request, _ in fleet.waiting) == [0, 0, 2]
        for place in range(3):
            fleet.answer(place)
        await asyncio.gather(*tasks)

    fleet = Held()
    play(scenario, fleet)


@pytest.mark.parametrize("by_deadline", [True, False])
def test_a_client_that_leaves_cancels_its_request(by_deadline: bool):
    async def scenario(front: GrpcFront, call: Call) -> None:
        pending = call("ModelInfer", request(), timeout=1.0 if by_deadline else None)
        task = asyncio.ensure_future(pending.code())
        await until(lambda: bool(fleet.waiting))
        if not by_deadline:
            pending.cancel()
        await until(lambda: fleet.cancelled == ["r"])
        code = await task
        assert code.name == ("DEADLINE_EXCEEDED" if by_deadline else "CANCELLED")
        fleet.answer(0)  # too late, and harmless

    fleet = Held()
    play(scenario, fleet)


def test_drain_is_not_ready_first_then_unavailable_and_waits_for_answers():
    async def scenario(front: GrpcFront, call: Call) -> None:
        busy = asyncio.ensure_future(call("ModelInfer", request()))
        await until(lambda: len(fleet.waiting) == 1)
        draining = asyncio.create_task(front.drain(grace_s=0.3))
        await asyncio.sleep(0)
        assert not (await call("ServerReady")).ready and (await call("ServerLive")).live
        await until(lambda: front.closed)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call("ModelInfer", request())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "draining" in caught.value.details()
        assert not draining.done() and len(fleet.waiting) == 1
        fleet.answer(0)
        assert (await busy).id == "r"
        assert await draining

    fleet = Held()
    play(scenario, fleet)


def test_a_stream_answers_in_order_and_outlives_a_refusal():
    async def scenario(front: GrpcFront, call: Call) -> None:
        stream = call.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            MESSAGES["ModelInferRequest"].SerializeToString,
            MESSAGES["ModelStreamInferResponse"].FromString,
        )
        sent = [request(id="0"), request([np.nan, 0], id="1"), request(id="2")]
        got = [answer async for answer in stream(iter(sent))]
        assert [answer.infer_response.id for answer in got] == ["0", "1", "2"]
        assert [bool(answer.error_message) for answer in got] == [False, True, False]
        assert "nan" in got[1].error_message

    play(scenario)


def test_a_message_over_the_limit_is_refused():
    async def scenario(front: GrpcFront, call: Call) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call("ModelInfer", request(raw_input_contents=[b"x" * 2000]))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await call("ModelInfer", request())).id == "r"

    play(scenario, body_limit_bytes=1000)


def test_a_port_in_use_is_a_mistake_with_a_remedy():
    async def scenario(front: GrpcFront, call: Call) -> None:
        with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1:{front.port}"):
            await GrpcFront(ZeroFleet(MODEL)).start("127.0.0.1", front.port)

    play(scenario)


def test_tritonclient_works_unmodified():
    triton = pytest.importorskip("tritonclient.grpc.aio")

    async def scenario(front: GrpcFront, call: Call) -> None:
        async with triton.InferenceServerClient(f"127.0.0.1:{front.port}") as client:
            assert await client.is_server_live() and await client.is_server_ready()
            assert await client.is_model_ready("slim net", "1")
            assert (await client.get_server_metadata()).name == "trimtab"
            assert (await client.get_model_metadata("slim net")).inputs[0].shape == [-1, 2]
            tensor = triton.InferInput("image", [2, 2], "FP32")
            tensor.set_data_from_numpy(np.float32([[1, 2], [3, 4]]))
            wanted = [triton.InferRequestedOutput("logits")]
            result = await client.infer(
                "slim net", [tensor], outputs=wanted, request_id="r", timeout=500_000, priority=1
            )
            assert result.as_numpy("logits").tolist() == [[2.0, 4.0], [6.0, 8.0]]
            assert result.get_response().id == "r"
            with pytest.raises(triton.InferenceServerException, match="'fat' is not served"):
                await client.infer("fat", [tensor])

    play(scenario)


def test_the_messages_agree_with_tritonclients():
    theirs = pytest.importorskip("tritonclient.grpc.service_pb2")
    for name, ours in MESSAGES.items():
        outer, _, inner = name.partition(".")
        other = getattr(theirs, outer).DESCRIPTOR
        other = other.nested_types_by_name[inner] if inner else other
        assert [(f.number, f.name, f.type, f.is_repeated) for f in ours.DESCRIPTOR.fields] == [
            (f.number, f.name, f.type, f.is_repeated) for f in other.fields
        ]
        assert ours.DESCRIPTOR.full_name == other.full_name


class Full(ZeroFleet):
    """A fleet that turns every request away, and notes the traces it is told of."""

    def __init__(self) -> None:
        super().__init__(MODEL)
        self.traces: list[dict[str, str]] = []
        self.full = True

    def turn_away(self, trace):
        self.traces.append(dict(trace))
        return Answer(why=Why.BUSY, reason="full", retry_after_s=0.5) if self.full else None

    def submit(self, request, done):
        assert request.trace == self.traces[-1]
        return super().submit(request, done)


def test_a_full_fleet_turns_a_request_away_unread():
    code, details, trailer = fault(request([np.nan, 0]), Full())
    assert (code, details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    assert trailer["retry-after-ms"] == "500"


@pytest.mark.parametrize("traced", [True, False])
def test_the_callers_trace_is_handed_on_where_somebody_wants_it(traced: bool):
    sent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    fleet = Full()
    fleet.full = False

    async def scenario(front: GrpcFront, call: Call) -> None:
        await call("ModelInfer", request(), metadata=[*sent.items(), ("other", "x")])
        await call("ModelInfer", request())

    play(scenario, fleet, traced=traced)
    assert fleet.traces == [sent if traced else {}, {}]
