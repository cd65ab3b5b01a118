# SPDX-License-Identifier: Apache-2.0
"""Network activations: one record each, the single source for every lookup by name.

An activation comes in several forms, because networks run as modules of torch, inside compiled steps, in a fused kernel
and in exported files. Code that needs a missing form raises an error that names the activation, or falls back: neural
dynamics without a kernel run as torch modules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Literal

from neurodyn.core.errors import unknown
from neurodyn.core.registry import Registry

Form = Literal["function", "value", "kernel", "onnx", "rsl_rl"]

Operators = Callable[[Callable[..., str], str], str]
"""Builds the ONNX nodes of an activation from a function that adds a node, `(operator, *inputs) -> output`, and an
input.
"""


def _import_callable(given: str | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(given, str):
        return given
    module, _, attribute = given.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True)
class Activation:
    """An activation y = f(z) in every form that the library's networks use.

    Callables of torch may be given as "module:attribute", imported on first use. Expressions are in C, with `real` as
    the number type.
    """

    function: str | Callable[..., Any]
    """Tensor function of the same output shape, for torch networks."""
    module: str | Callable[[], Any]
    """Class of the torch module, constructed without arguments."""
    in_place: str | Callable[..., Any] | bool = False
    """Variant of the function that may overwrite its input; True for its argument `inplace`, False for none."""
    value: str = ""
    """y as an expression in z, inside compiled steps; empty for none."""
    slope: str = ""
    """dy/dz as an expression in z and y."""
    curvature: str = ""
    """Derivative of the slope with respect to z, as an expression in z and y."""
    kernel: str = ""
    """y as an expression in v[i] and `sigmoid`, in the fused kernel of neural dynamics; empty for none."""
    onnx: Operators | None = None
    """ONNX operators that compute it in Newton's actuator network files; None for none."""
    rsl_rl: str = ""
    """Name of the activation in rsl_rl, for policies; empty if it has none."""

    @cached_property
    def apply(self) -> Callable[..., Any]:
        """The torch function."""
        return _import_callable(self.function)

    @cached_property
    def apply_(self) -> Callable[..., Any]:
        """The torch function that may overwrite its input."""
        if self.in_place is True:
            return partial(self.apply, inplace=True)
        return _import_callable(self.in_place or self.function)

    @cached_property
    def new_module(self) -> Callable[[], Any]:
        """The class of the torch module."""
        return _import_callable(self.module)


_SIGMOID = "(real)1 / ((real)1 + ::wp::exp(-z))"

ACTIVATIONS: Registry[Activation] = Registry(
    "activation",
    silu=Activation(
        function="torch.nn.functional:silu",
        module="torch.nn:SiLU",
        in_place=True,
        value="z / ((real)1 + ::wp::exp(-z))",
        slope="y + ((real)1 - y) / ((real)1 + ::wp::exp(-z))",
        curvature=f"{_SIGMOID} * ((real)1 - {_SIGMOID}) * ((real)2 + z * ((real)1 - (real)2 * {_SIGMOID}))",
        kernel="v[i] * sigmoid(v[i])",
        onnx=lambda add, z: add("Mul", z, add("Sigmoid", z)),
        rsl_rl="swish",
    ),
    gelu=Activation(
        function="torch.nn.functional:gelu",
        module="torch.nn:GELU",
        kernel="(real)0.5 * v[i] * ((real)1 + ::wp::erf(v[i] * (real)0.70710678118654752))",
    ),
    relu=Activation(
        function="torch.nn.functional:relu",
        module="torch.nn:ReLU",
        in_place="torch:relu_",
        value="SELECT(z > (real)0, z, (real)0)",
        slope="SELECT(z > (real)0, (real)1, (real)0)",
        curvature="(real)0 * z",
        kernel="v[i] < (real)0 ? (real)0 : v[i]",
        onnx=lambda add, z: add("Relu", z),
        rsl_rl="relu",
    ),
    tanh=Activation(
        function="torch:tanh",
        module="torch.nn:Tanh",
        in_place="torch:tanh_",
        value="::wp::tanh(z)",
        slope="(real)1 - y * y",
        curvature="(real)-2 * y * ((real)1 - y * y)",
        kernel="::wp::tanh(v[i])",
        onnx=lambda add, z: add("Tanh", z),
        rsl_rl="tanh",
    ),
    elu=Activation(
        function="torch.nn.functional:elu",
        module="torch.nn:ELU",
        value="SELECT(z > (real)0, z, ::wp::exp(z) - (real)1)",
        slope="SELECT(z > (real)0, (real)1, y + (real)1)",
        curvature="SELECT(z > (real)0, (real)0, y + (real)1)",
        onnx=lambda add, z: add("Elu", z),
        rsl_rl="elu",
    ),
    selu=Activation(function="torch.nn.functional:selu", module="torch.nn:SELU", rsl_rl="selu"),
    softplus=Activation(
        function="torch.nn.functional:softplus",
        module="torch.nn:Softplus",
        value="SELECT(z > (real)0, z, (real)0) + ::wp::log((real)1 + ::wp::exp(SELECT(z > (real)0, -z, z)))",
        slope="(real)1 / ((real)1 + ::wp::exp(-z))",
        curvature=f"{_SIGMOID} * ((real)1 - {_SIGMOID})",
        onnx=lambda add, z: add("Softplus", z),
    ),
    softsign=Activation(
        function="torch.nn.functional:softsign",
        module="torch.nn:Softsign",
        value="z / ((real)1 + SELECT(z > (real)0, z, -z))",
        slope="((real)1 - SELECT(y > (real)0, y, -y)) * ((real)1 - SELECT(y > (real)0, y, -y))",
        curvature=(
            "SELECT(z > (real)0, (real)-2, (real)2) * ((real)1 - SELECT(y > (real)0, y, -y)) * "
            "((real)1 - SELECT(y > (real)0, y, -y)) * ((real)1 - SELECT(y > (real)0, y, -y))"
        ),
        onnx=lambda add, z: add("Softsign", z),
    ),
)
"""Activations by name."""


def activations_with(form: Form) -> tuple[str, ...]:
    """Return the names of the activations that have a given form."""
    return tuple(name for name in ACTIVATIONS if getattr(ACTIVATIONS[name], form))


def require_activation(name: str, form: Form) -> None:
    """Raise an InputError that lists the valid names if an activation is unknown or lacks a form."""
    if name not in ACTIVATIONS or not getattr(ACTIVATIONS[name], form):
        raise unknown("activation", name, activations_with(form))
