"""Graphs for LiteRT.js: those of a LiteRT file, with outputs of constant shapes.

LiteRT.js allocates the outputs of a graph before it resizes the inputs. Therefore each output is
padded to its longest shape. The page reads the part that belongs to the lengths of the inputs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.tools import flatbuffer_utils

from tfnmt.errors import UserError

Shape = list[int | str]
"""A shape. A string is an axis that is as long as the input of this name, for example `source`."""

Shapes = dict[str, dict[str, dict[str, Shape]]]
"""By graph: the shapes of its `inputs` and `outputs` by name."""

NUMPY_TYPES = {schema.TensorType.FLOAT32: np.float32, schema.TensorType.INT32: np.int32}
"""The types of padded outputs."""

FIRST_SIZE = 11
"""The size of the first input while shapes are read. The others have the next odd numbers."""


def browser_graphs(path: Path, longest: Mapping[str, int]) -> tuple[bytes, Shapes]:
    """Return a LiteRT file whose outputs have constant shapes, and the shapes of its graphs.

    Args:
        path: The LiteRT file.
        longest: The largest size of each input.

    Raises:
        UserError: The size of an output is not that of an input.
    """
    shapes = read_shapes(path)
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(path.read_bytes()))
    for signature in model.signatureDefs:
        padder = _Padder(model, model.subgraphs[signature.subgraphIndex])
        outputs = shapes[signature.signatureKey.decode()]["outputs"]
        for output in signature.outputs:
            shape = outputs[output.name.decode()]
            sizes = [longest[size] if isinstance(size, str) else size for size in shape]
            if sizes != shape:
                output.tensorIndex = padder.pad_output(output.tensorIndex, sizes)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model)), shapes


def read_shapes(path: Path) -> Shapes:
    """Return the shapes of the graphs of a LiteRT file. Each input may have one dynamic axis.

    Raises:
        UserError: The size of an output is not that of an input.
    """
    interpreter = Interpreter(str(path), num_threads=1)
    return {
        name: _shapes_of(interpreter.get_signature_runner(name), f"{path}: {name}")
        for name in interpreter.get_signature_list()
    }


def _shapes_of(runner: Any, place: str) -> dict[str, dict[str, Shape]]:
    """Run a graph with a different size of each input, and recognize the sizes in the outputs."""
    details = runner.get_input_details()
    signatures = {name: each["shape_signature"].tolist() for name, each in details.items()}
    dynamic = sorted(name for name, signature in signatures.items() if -1 in signature)
    sizes = {name: FIRST_SIZE + 2 * number for number, name in enumerate(dynamic)}
    values = {
        name: np.ones([sizes[name] if n == -1 else n for n in signature], details[name]["dtype"])
        for name, signature in signatures.items()
    }
    found = {name: value.shape for name, value in runner(**values).items()}
    axes = {size: name for name, size in sizes.items()}
    outputs: dict[str, Shape] = {}
    for name, each in runner.get_output_details().items():
        signature = each["shape_signature"].tolist()
        pairs = list(zip(signature, found[name], strict=True))
        if unknown := [size for known, size in pairs if known == -1 and size not in axes]:
            raise UserError(f"{place}.{name}: size {unknown[0]} is not that of an input")
        outputs[name] = [axes[size] if known == -1 else known for known, size in pairs]
    inputs: dict[str, Shape] = {
        name: [name if n == -1 else n for n in signature] for name, signature in signatures.items()
    }
    return {"inputs": inputs, "outputs": outputs}


class _Padder:
    """Adds operations to a graph that pad its outputs."""

    def __init__(self, model: Any, graph: Any) -> None:
        self._model = model
        self._graph = graph

    def pad_output(self, number: int, shape: Sequence[int]) -> int:
        """Replace an output of the graph by the same values at the beginning of zeros.

        Args:
            number: The number of the tensor.
            shape: The shape of the padded tensor.

        Returns:
            The number of the padded tensor.
        """
        kind = self._graph.tensors[number].type
        zeros, padded = self._tensor(shape, kind), self._tensor(shape, kind)
        size = self._constant(np.array(shape, np.int32))
        zero = self._constant(np.zeros((), NUMPY_TYPES[kind]))
        start = self._constant(np.zeros(len(shape), np.int32))
        self._add("FILL", [size, zero], zeros)
        self._add("DYNAMIC_UPDATE_SLICE", [zeros, number, start], padded)
        self._graph.outputs = [padded if n == number else n for n in self._graph.outputs]
        return padded

    def _constant(self, value: np.ndarray) -> int:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(value.tobytes(), np.uint8)
        self._model.buffers.append(buffer)
        kind = next(kind for kind, each in NUMPY_TYPES.items() if each == value.dtype)
        return self._tensor(value.shape, kind, len(self._model.buffers) - 1)

    def _tensor(self, shape: Sequence[int], kind: int, buffer: int = 0) -> int:
        tensor = schema.TensorT()
        tensor.shape, tensor.type, tensor.buffer = list(shape), kind, buffer
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def _add(self, name: str, inputs: list[int], output: int) -> None:
        operation = schema.OperatorT()
        operation.opcodeIndex = self._code(getattr(schema.BuiltinOperator, name))
        operation.inputs, operation.outputs = inputs, [output]
        self._graph.operators.append(operation)

    def _code(self, builtin: int) -> int:
        """Return the number of an operation in the list of the file."""
        codes = self._model.operatorCodes
        for number, code in enumerate(codes):
            if code.builtinCode == builtin:
                return number
        code = schema.OperatorCodeT()
        code.builtinCode, code.version = builtin, 1
        code.deprecatedBuiltinCode = min(
            builtin, schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
        )
        codes.append(code)
        return len(codes) - 1
