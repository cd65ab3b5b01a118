# SPDX-License-Identifier: Apache-2.0
"""Loops whose body is traced: one function of many items, whose text does not grow with their number."""

from collections.abc import Callable, Sequence

from neurodyn.multibody.trace.expression import Expression, Graph, Scalar
from neurodyn.multibody.trace.loops import Loop, apply_loop
from neurodyn.multibody.trace.reverse import pull_back
from neurodyn.multibody.trace.text import statements

Body = Callable[[list[Scalar], list[Expression], list[Expression]], Sequence[Scalar]]
"""Results of an item, from what is common to all, from the block that the item belongs to, and from its own numbers."""


def mapped(
    graph: Graph, name: str, body: Body, common: Sequence[Scalar], blocks: Sequence[Sequence[Scalar]],
    items: Sequence[tuple[int, Sequence[Scalar]]],
) -> list[list[Expression]]:  # fmt: skip
    """Return the results of a function for each of some items.

    An item is skipped where its first number is not above 0 in any world, and its results are 0; where it is above 0 in
    other worlds of a vector alone, results are computed from what numbers there are, and must be finite.

    Args:
        graph: The graph of all values.
        name: What it is, for messages.
        body: The function, traced once.
        common: Values that all items take; numbers among them fold.
        blocks: Values that some items take, as many for each block.
        items: For each item the number of its block and its own values, as many for each; no derivative goes to these.
    """
    inner = Graph()
    traced = [value for value in common if isinstance(value, Expression)]
    places = iter(inner.inputs("common", len(traced)))
    given = [next(places) if isinstance(value, Expression) else value for value in common]
    block, item = inner.inputs("block", len(blocks[0])), inner.inputs("item", len(items[0][1]))
    results = list(body(given, block, item))
    seeds = inner.inputs("seed", len(results))
    wanted = [*inner.inputs("common", len(traced)), *block]
    gradients = pull_back([inner.lift(x) for x in results], seeds, wanted)
    own = [value for _, values in items for value in values]
    first = [0, len(traced), len(traced) + len(block) * len(blocks)]
    scope = (
        f"const int of[] = {{{', '.join(str(number) for number, _ in items)}}};\n"
        f"for (int k = 0; k < {len(items)}; ++k) {{\n"
        f"const real* common = in; const real* block = in + {first[1]} + {len(block)} * of[k];\n"
        f"const real* item = in + {first[2]} + {len(item)} * k; (void)common; (void)block;\n"
    )
    arrays = {kind: f"{kind}[{{}}]" for kind in ("common", "block", "item", "seed")}
    forward = (
        f"{scope}real* made = out + {len(results)} * k;\nif (ANY(item[0] > (real)0)) {{\n"
        f"{statements(inner, [(f'made[{i}] =', x) for i, x in enumerate(results)], arrays)}\n"
        f"}} else {{ for (int i = 0; i < {len(results)}; ++i) made[i] = (real)0; }}\n}}"
    )
    lefts = [f"by_common[{i}] +=" for i in range(len(traced))] + [f"by_block[{i}] +=" for i in range(len(block))]
    adjoint = (
        f"const real* seeds = seed;\n{scope}if (ANY(item[0] > (real)0)) {{\n"
        f"const real* seed = seeds + {len(results)} * k; real* by_common = adj;"
        f" real* by_block = adj + {first[1]} + {len(block)} * of[k]; (void)by_common;\n"
        f"{statements(inner, list(zip(lefts, gradients, strict=True)), arrays)}\n}}\n}}"
    )
    loop = Loop(
        name=name, inputs=first[2] + len(own), outputs=len(results) * len(items), saved=0, forward=forward,
        adjoint=adjoint, fixed=len(own),
    )  # fmt: skip
    found = apply_loop(graph, loop, [*traced, *(x for values in blocks for x in values), *own])
    return [found[len(results) * k : len(results) * (k + 1)] for k in range(len(items))]
