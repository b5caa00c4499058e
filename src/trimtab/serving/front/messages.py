"""The protobuf messages of inference.GRPCInferenceService, built from a table when imported.

Building them here needs no generated code and no compiler of a fixed version. They live in a pool
of their own, because a client library in the same process may register the same names.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = "inference.GRPCInferenceService"

# message: its fields as `number name type`; `type*` is repeated, `map` is string to InferParameter,
# and a name after a dot is nested in the one before
TABLE = {
    "InferParameter": """
        1 bool_param bool, 2 int64_param int64, 3 string_param string,
        4 double_param double, 5 uint64_param uint64""",
    "InferTensorContents": """
        1 bool_contents bool*, 2 int_contents int32*, 3 int64_contents int64*,
        4 uint_contents uint32*, 5 uint64_contents uint64*, 6 fp32_contents float*,
        7 fp64_contents double*, 8 bytes_contents bytes*""",
    "ServerLiveRequest": "",
    "ServerLiveResponse": "1 live bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "1 ready bool",
    "ModelReadyRequest": "1 name string, 2 version string",
    "ModelReadyResponse": "1 ready bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "1 name string, 2 version string, 3 extensions string*",
    "ModelMetadataRequest": "1 name string, 2 version string",
    "ModelMetadataResponse": """
        1 name string, 2 versions string*, 3 platform string,
        4 inputs ModelMetadataResponse.TensorMetadata*,
        5 outputs ModelMetadataResponse.TensorMetadata*""",
    "ModelMetadataResponse.TensorMetadata": "1 name string, 2 datatype string, 3 shape int64*",
    "ModelInferRequest": """
        1 model_name string, 2 model_version string, 3 id string, 4 parameters map,
        5 inputs ModelInferRequest.InferInputTensor*,
        6 outputs ModelInferRequest.InferRequestedOutputTensor*, 7 raw_input_contents bytes*""",
    "ModelInferRequest.InferInputTensor": """
        1 name string, 2 datatype string, 3 shape int64*, 4 parameters map,
        5 contents InferTensorContents""",
    "ModelInferRequest.InferRequestedOutputTensor": "1 name string, 2 parameters map",
    "ModelInferResponse": """
        1 model_name string, 2 model_version string, 3 id string, 4 parameters map,
        5 outputs ModelInferResponse.InferOutputTensor*, 6 raw_output_contents bytes*""",
    "ModelInferResponse.InferOutputTensor": """
        1 name string, 2 datatype string, 3 shape int64*, 4 parameters map,
        5 contents InferTensorContents""",
    "ModelStreamInferResponse": "1 error_message string, 2 infer_response ModelInferResponse",
}
ONEOF = {"InferParameter": "parameter_choice"}  # the fields of the message exclude each other

Field = descriptor_pb2.FieldDescriptorProto


def add_field(message: Any, full_name: str, line: str) -> None:
    """Add one field of the table to a message descriptor."""
    number, name, kind = line.split()
    field = message.field.add(name=name, number=int(number))
    field.label = Field.LABEL_REPEATED if kind[-1] == "*" else Field.LABEL_OPTIONAL
    kind = kind.rstrip("*")
    if full_name in ONEOF:
        field.oneof_index = 0
    if kind == "map":
        # what the protobuf language writes as map<string, InferParameter>
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        add_field(entry, "", "1 key string")
        add_field(entry, "", "2 value InferParameter")
        field.label = Field.LABEL_REPEATED
        kind = f"{full_name}.ParametersEntry"
    if kind[0].isupper():
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    else:
        field.type = Field.Type.Value(f"TYPE_{kind.upper()}")


def build() -> dict[str, Any]:
    """The class of every message in the table, by its name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="trimtab/open_inference.proto", package=PACKAGE, syntax="proto3"
    )
    made: dict[str, Any] = {}
    for full_name, fields in TABLE.items():
        outer, _, inner = full_name.partition(".")
        message = made[outer].nested_type.add(name=inner) if inner else file.message_type.add()
        message.name = inner or outer
        made[full_name] = message
        if full_name in ONEOF:
            message.oneof_decl.add(name=ONEOF[full_name])
        for line in filter(None, (part.strip() for part in fields.split(","))):
            add_field(message, full_name, line)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in TABLE
    }


MESSAGES = build()
