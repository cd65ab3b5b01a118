# SPDX-License-Identifier: Apache-2.0
# Warp reads the annotations of these functions, whose array types depend on the precision.
# ruff: noqa: ANN202
# pyright: basic, reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false
"""Texts as Warp kernels."""

from typing import Any

import warp as wp


def native_kernels(forward_text: str, adjoint_text: str, real: Any) -> tuple[Any, Any]:
    """Return the kernels of both texts in one precision, each in a module of its own."""
    array = wp.array(dtype=real)

    @wp.func_native(forward_text)
    def forward(
        world: int, frames: int, substeps: int, p_stride: int, x: array, u: array, h: array, p: array, w: array,
    ): ...  # fmt: skip

    @wp.func_native(adjoint_text)
    def adjoint(
        world: int, frames: int, substeps: int, p_stride: int, x: array, u: array, h: array, p: array, w: array,
        gx: array, gx0: array, gu: array, gh: array, gp: array, gw: array,
    ): ...  # fmt: skip

    @wp.kernel(enable_backward=False, module="unique")
    def forward_kernel(
        first: int, frames: int, substeps: int, p_stride: int, x: array, u: array, h: array, p: array, w: array,
    ):  # fmt: skip
        forward(first + wp.tid(), frames, substeps, p_stride, x, u, h, p, w)

    @wp.kernel(enable_backward=False, module="unique")
    def adjoint_kernel(
        first: int, frames: int, substeps: int, p_stride: int, x: array, u: array, h: array, p: array, w: array,
        gx: array, gx0: array, gu: array, gh: array, gp: array, gw: array,
    ):  # fmt: skip
        adjoint(first + wp.tid(), frames, substeps, p_stride, x, u, h, p, w, gx, gx0, gu, gh, gp, gw)

    return forward_kernel, adjoint_kernel
