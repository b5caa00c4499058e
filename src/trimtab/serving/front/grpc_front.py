"""The gRPC front: inference.GRPCInferenceService of the Open Inference Protocol v2."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.front.messages import MESSAGES, SERVICE
from trimtab.serving.front.oip import (
    EXTENSIONS,
    check_complete,
    input_spec,
    output_name,
    refuse_unsupported,
    request_of,
)
from trimtab.serving.front.tensors import from_bytes, from_values, raw, read_shape
from trimtab.serving.nouns import (
    Answer,
    Fleet,
    Metadata,
    Request,
    Scalar,
    Why,
    nothing,
    stranger,
    trace_of,
)

MIB = 1 << 20
CODE_OF = {
    Why.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Why.UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Why.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Why.LATE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Why.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Why.FAILED: grpc.StatusCode.INTERNAL,
}
# datatype -> the field of InferTensorContents that carries it; FP16 and BF16 travel raw only
CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


class GrpcFront:
    """A gRPC server before one fleet. Make it and use it on one event loop."""

    def __init__(
        self,
        fleet: Fleet,
        version: str = "",
        body_limit_bytes: int = 64 * MIB,
        call_limit: int = 1024,
        traced: bool = False,  # read the caller's trace context, which costs some microseconds
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fleet, self.model, self.version, self.clock = fleet, fleet.model, version, clock
        self.traced = traced
        self.draining = False
        self.closed = False
        self.in_flight = 0
        self.empty = asyncio.Event()
        self.port = 0
        options = [
            ("grpc.max_receive_message_length", body_limit_bytes),
            ("grpc.max_send_message_length", -1),
            # without this a second server takes the same port in silence, and half the calls
            ("grpc.so_reuseport", 0),
        ]
        self.server = grpc.aio.server(options=options, maximum_concurrent_rpcs=call_limit)
        self.server.add_generic_rpc_handlers((handlers_of(self),))

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be served."""
        return self.fleet.ready and not self.draining

    async def start(self, host: str = "127.0.0.1", port: int = 8001) -> None:
        """Listen; port 0 takes a free one."""
        try:
            self.port = self.server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ServeError(f"cannot listen on {host}:{port}: {error}; choose another") from None
        await self.server.start()

    async def drain(self, grace_s: float = 0.0, limit_s: float = 30.0) -> bool:
        """Stop in order: not ready, `grace_s` later no new requests, then close when all answered.

        True where every request in flight was answered within `limit_s`.
        """
        self.draining = True
        await asyncio.sleep(grace_s)
        self.closed = True
        try:
            if self.in_flight:
                self.empty.clear()
                await asyncio.wait_for(self.empty.wait(), limit_s)
        except TimeoutError:
            pass
        answered = self.in_flight == 0
        # not earlier: a stopping server cancels new calls instead of saying that it is unavailable
        await self.server.stop(1.0 if answered else 0.0)
        return answered

    async def ask(self, message: Any, context: Any) -> tuple[Any, Answer]:
        """Serve one request: its response, or None and the reason; leaving the call cancels it."""
        if self.closed:
            reason = "the server is draining; ask another"
            return None, Answer(why=Why.UNAVAILABLE, reason=reason, retry_after_s=1.0)
        reason = stranger(self.model, message.model_name, message.model_version)
        if reason:
            return None, Answer(why=Why.UNKNOWN, reason=reason)
        trace = trace_in(context) if self.traced else {}
        refused = self.fleet.turn_away(trace)
        if refused is not None:
            return None, refused
        now_s, left_s = self.clock(), context.time_remaining()
        deadline_s = math.inf if left_s is None else now_s + left_s
        try:
            request = read_message(self.model, message, now_s, deadline_s)
            request.trace = trace
        except ServeError as error:
            return None, Answer(why=Why.INVALID, reason=str(error))
        try:
            answer = await self.answered(request)
            done = answer.why is Why.DONE
            return write_message(self.model, request, answer) if done else None, answer
        except Exception as error:
            # the fleet's fault, not the client's: the log gets the error, the client its kind
            context = {"message": "the fleet failed a request", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            reason = f"the fleet failed: {type(error).__name__}"
            return None, Answer(why=Why.FAILED, reason=reason)

    async def answered(self, request: Request) -> Answer:
        """The fleet's answer."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        self.in_flight += 1
        cancel = nothing
        try:
            cancel = self.fleet.submit(request, done)
            return await future
        except asyncio.CancelledError:
            cancel()
            raise
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                self.empty.set()

    async def infer(self, message: Any, context: Any) -> Any:
        """ModelInfer."""
        response, answer = await self.ask(message, context)
        if response is None:
            trailer = retry_trailer(answer.retry_after_s)
            await context.abort(CODE_OF[answer.why], answer.reason, trailer)
        return response

    async def stream(self, messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """ModelStreamInfer: one answer a request, in order; a refusal does not end the stream."""
        reply = MESSAGES["ModelStreamInferResponse"]
        async for message in messages:
            response, answer = await self.ask(message, context)
            if response is None:
                # the id tells the client which request it was
                response = MESSAGES["ModelInferResponse"](id=message.id)
            yield reply(error_message=answer.reason, infer_response=response)

    async def server_live(self, message: Any, context: Any) -> Any:
        """ServerLive."""
        return MESSAGES["ServerLiveResponse"](live=True)

    async def server_ready(self, message: Any, context: Any) -> Any:
        """ServerReady."""
        return MESSAGES["ServerReadyResponse"](ready=self.ready)

    async def model_ready(self, message: Any, context: Any) -> Any:
        """ModelReady."""
        await self.check_name(message, context)
        return MESSAGES["ModelReadyResponse"](ready=self.ready)

    async def server_metadata(self, message: Any, context: Any) -> Any:
        """ServerMetadata."""
        return MESSAGES["ServerMetadataResponse"](
            name="trimtab", version=self.version, extensions=EXTENSIONS
        )

    async def model_metadata(self, message: Any, context: Any) -> Any:
        """ModelMetadata."""
        await self.check_name(message, context)
        tensor = MESSAGES["ModelMetadataResponse.TensorMetadata"]
        return MESSAGES["ModelMetadataResponse"](
            name=self.model.name,
            versions=self.model.versions,
            platform=self.model.platform,
            inputs=[tensor(**spec._asdict()) for spec in self.model.inputs],
            outputs=[tensor(**spec._asdict()) for spec in self.model.outputs],
        )

    async def check_name(self, message: Any, context: Any) -> None:
        """End the call where it names another model or version."""
        reason = stranger(self.model, message.name, message.version)
        if reason:
            await context.abort(grpc.StatusCode.NOT_FOUND, reason)


def handlers_of(front: GrpcFront) -> Any:
    """The service's methods, each with its messages."""
    unary = {
        "ServerLive": front.server_live,
        "ServerReady": front.server_ready,
        "ModelReady": front.model_ready,
        "ServerMetadata": front.server_metadata,
        "ModelMetadata": front.model_metadata,
        "ModelInfer": front.infer,
    }
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            method,
            MESSAGES[name + "Request"].FromString,
            MESSAGES[name + "Response"].SerializeToString,
        )
        for name, method in unary.items()
    }
    methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        front.stream,
        MESSAGES["ModelInferRequest"].FromString,
        MESSAGES["ModelStreamInferResponse"].SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def trace_in(context: Any) -> dict[str, str]:
    """The caller's trace context; a stream's is that of all its requests."""
    sent = {name: value for name, value in context.invocation_metadata() or ()}
    return trace_of(sent.get)


def retry_trailer(retry_after_s: float) -> tuple[tuple[str, str], ...]:
    """When to come back, in whole seconds and in milliseconds."""
    if retry_after_s <= 0:
        return ()
    waits = (math.ceil(retry_after_s), math.ceil(retry_after_s * 1e3))
    return (("retry-after", str(waits[0])), ("retry-after-ms", str(waits[1])))


def read_message(model: Metadata, message: Any, now_s: float, deadline_s: float) -> Request:
    """Decode one ModelInferRequest."""
    raws = message.raw_input_contents
    if raws and len(raws) != len(message.inputs):
        raise ServeError(
            f"raw_input_contents has {len(raws)} tensors and inputs {len(message.inputs)};"
            " send one a tensor, or contents for all"
        )
    inputs: dict[str, Array] = {}
    for place, entry in enumerate(message.inputs):
        spec = input_spec(model, entry.name, inputs)
        refuse_unsupported(values(entry.parameters), spec.name)
        shape = read_shape(spec, entry.datatype, tuple(entry.shape))
        if raws:
            whole = raws[place]
            inputs[spec.name] = from_bytes(spec, shape, whole, 0, len(whole))
            continue
        if spec.datatype not in CONTENTS:
            raise ServeError(f"{spec.name}: send {spec.datatype} in raw_input_contents")
        flat = list(getattr(entry.contents, CONTENTS[spec.datatype]))
        if len(flat) != math.prod(shape):
            raise ServeError(
                f"{spec.name}: {CONTENTS[spec.datatype]} holds {len(flat)} values; shape"
                f" {list(shape)} needs {math.prod(shape)}"
            )
        inputs[spec.name] = from_values(spec, shape, flat)
    check_complete(model, inputs)
    names: list[str] = []
    for entry in message.outputs:
        refuse_unsupported(values(entry.parameters), "outputs")
        names.append(output_name(model, entry.name, names))
    outputs = tuple(names) or model.output_names
    request = request_of(inputs, outputs, message.id, values(message.parameters), now_s, deadline_s)
    request.version = message.model_version
    return request


def values(parameters: Any) -> Mapping[str, Any]:
    """A map of InferParameter as plain values."""
    return {
        key: getattr(value, value.WhichOneof("parameter_choice") or "string_param")
        for key, value in parameters.items()
    }


def write_message(model: Metadata, request: Request, answer: Answer) -> Any:
    """Encode one ModelInferResponse; tensors travel raw."""
    response = MESSAGES["ModelInferResponse"](
        model_name=model.name,
        model_version=request.version or model.versions[-1],
        id=request.request_id,
    )
    for name in request.outputs:
        spec, tensor = model.output_of[name], answer.outputs[name]
        response.outputs.add(name=name, datatype=spec.datatype, shape=tensor.shape)
        response.raw_output_contents.append(bytes(raw(spec, tensor)))
    for key, value in answer.parameters.items():
        setattr(response.parameters[key], param_field(value), value)
    return response


def param_field(value: Scalar) -> str:
    """The field of InferParameter that carries a value of this type."""
    # bool first: it is an int in Python
    for kind, field in (
        (bool, "bool_param"),
        (int, "int64_param"),
        (float, "double_param"),
    ):
        if isinstance(value, kind):
            return field
    return "string_param"
