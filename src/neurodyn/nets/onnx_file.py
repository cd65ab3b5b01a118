# SPDX-License-Identifier: Apache-2.0
"""Export of modules as ONNX files with metadata, verified against the module."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core.artifacts import atomic
from neurodyn.core.errors import NeurodynError
from neurodyn.core.extras import import_extra
from neurodyn.core.progress import tell

METADATA = "neurodyn"
"""Key of the file's metadata whose value is JSON."""

_CHECKED_WORLDS = (1, 7)
_TOLERANCE = 1e-4


class _Positional(nn.Module):
    """A module with positional arguments only, so that their shapes are declared uniformly."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self.module(*tensors)


def write_onnx(
    path: Path,
    module: nn.Module,
    examples: Sequence[Tensor],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    metadata: dict[str, Any],
    before: Any = None,
    functions: Mapping[str, Callable[[str], Any]] | None = None,
    reference: nn.Module | None = None,
) -> float:
    """Write a module as an ONNX file, after checking that ONNX Runtime computes the same.

    Args:
        path: File to write.
        module: Map from tensors to a tuple of tensors; worlds are the first axis of all.
        examples: One tensor per input, for at least two worlds.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        metadata: Description of the model as plain data, stored as JSON.
        before: ONNX graph from some inputs, by name, to further inputs of the module [worlds, width]; None for none.
        functions: ONNX graphs of symbolic operators (`torch.onnx.ops.symbolic`) of the module, by "domain::name", each
            from a prefix of the names of its values.
        reference: Module to compare the file with, from the inputs to the outputs; None for `module`.

    Returns:
        Largest difference between the file and the module, relative to the output's largest value or 1.

    Raises:
        InputError: The packages of the extra "export" are missing, or the file cannot be written.
        NeurodynError: The file's outputs differ from the module's.
    """
    onnx = require_onnx()

    module, reference = module.eval(), (module if reference is None else reference).eval()
    size = max(_CHECKED_WORLDS) + 1
    repeated = [x[:1].expand(size, *x.shape[1:]).contiguous() for x in examples]
    between = {} if before is None else {x.name: x.type.tensor_type.shape.dim[1].dim_value for x in before.output}
    repeated += [torch.ones(size, width) for width in between.values()]
    worlds = torch.export.Dim("worlds", min=1, max=1 << 20)
    with torch.no_grad(), _quiet():
        tell(0.1, "tracing")
        module(*repeated)  # creates cached constants before tracing
        program = torch.onnx.export(
            _Positional(module),
            tuple(repeated),
            dynamo=True,
            input_names=[*inputs, *between],
            output_names=list(outputs),
            dynamic_shapes=(({0: worlds},) * len(repeated),),
            optimize=True,
        )
    assert program is not None  # not None, as no file was given
    proto = program.model_proto
    for name, graph_of in (functions or {}).items():
        _put_inside(name, graph_of, proto)
    if before is not None:
        _put_before(before, proto)
    onnx.helper.set_model_props(proto, {METADATA: json.dumps(metadata), **_plain(metadata)})
    tell(0.8, "comparing with ONNX Runtime")
    difference = _difference(proto.SerializeToString(), reference, examples, inputs)
    if not difference < _TOLERANCE:
        raise NeurodynError(f"{path}: the ONNX file differs from the model by {difference:.1e} of its output")
    with atomic(path) as partial:
        partial.write_bytes(proto.SerializeToString())
    return difference


def _put_inside(name: str, graph_of: Callable[[str], Any], model: Any) -> None:
    """Replace the nodes of a symbolic operator by graphs."""
    from onnx import helper

    (domain, operator), own, nodes = name.split("::"), model.graph, []
    for node in own.node:
        if (node.domain, node.op_type) != (domain, operator):
            nodes.append(node)
            continue
        graph = graph_of(f"{operator}{len(nodes)}/")
        ends = [*zip(node.input, (x.name for x in graph.input), strict=True)]
        nodes += [helper.make_node("Identity", [outer], [inner]) for outer, inner in ends]
        nodes += graph.node
        ends = [*zip((x.name for x in graph.output), node.output, strict=True)]
        nodes += [helper.make_node("Identity", [inner], [outer]) for inner, outer in ends]
        own.initializer.extend(graph.initializer)
    _replace(own.node, nodes)
    _replace(model.opset_import, [x for x in model.opset_import if x.domain != domain])


def _replace(field: Any, values: list[Any]) -> None:
    """Replace the entries of a repeated field, some of which may be among the values."""
    kept = [type(value).FromString(value.SerializeToString()) for value in values]
    del field[:]
    field.extend(kept)


def _put_before(graph: Any, model: Any) -> None:
    """Prepend a graph to a model that takes its outputs; the graph's inputs become the model's."""
    given, own = {value.name for value in graph.output}, model.graph
    inputs = [value for value in own.input if value.name not in given]
    missing = [value for value in graph.input if value.name not in {x.name for x in inputs}]
    nodes = [*graph.node, *own.node]
    for field, values in ((own.input, [*missing, *inputs]), (own.node, nodes)):
        _replace(field, values)
    own.initializer.extend(graph.initializer)


def require_onnx() -> Any:
    """Return the package onnx, or raise an InputError if packages of the extra "export" are missing."""
    onnx, *_ = (import_extra(name, "export to ONNX", "export") for name in ("onnx", "onnxruntime", "onnxscript"))
    return onnx


def _plain(metadata: dict[str, Any]) -> dict[str, str]:
    """Return the entries that other tools read: texts and numbers, with lists joined by commas."""
    plain = {}
    for key, value in metadata.items():
        if isinstance(value, list) and all(isinstance(x, str | int | float) for x in value):
            plain[key] = ",".join(str(x) for x in value)
        elif isinstance(value, str | int | float):
            plain[key] = str(value)
    return plain


def _difference(content: bytes, reference: nn.Module, examples: Sequence[Tensor], inputs: Sequence[str]) -> float:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    kept = {value.name for value in session.get_inputs()}
    worst = 0.0
    for worlds in _CHECKED_WORLDS:
        given = [x[torch.arange(worlds) % x.shape[0]] for x in examples]
        with torch.no_grad():
            wanted = reference(*given)
        computed = session.run(None, {name: x.numpy() for name, x in zip(inputs, given, strict=True) if name in kept})
        for mine, theirs in zip(wanted, computed, strict=True):
            if mine.numel():
                distance = (mine - torch.as_tensor(theirs)).abs().max()
                worst = max(worst, float(distance / mine.abs().max().clamp_min(1.0)))
    return worst


@contextlib.contextmanager
def _quiet() -> Any:
    """Silence the exporter's progress and its remarks on internals."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
