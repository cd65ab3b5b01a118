# SPDX-License-Identifier: Apache-2.0
"""Straight-line text of a graph in the language of Warp's native functions, and loops with traced bodies."""

from collections.abc import Callable, Collection, Mapping, Sequence

from neurodyn.multibody.trace.expression import Expression, Graph, Loop, Scalar, apply_loop
from neurodyn.multibody.trace.reverse import pull_back

_FORMS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
    "min": "SELECT({1} < {0}, {1}, {0})", "max": "SELECT({0} < {1}, {1}, {0})", "less": "SELECT({0} < {1}, {2}, {3})",
}  # fmt: skip
_CALLS = {"sqrt", "sin", "cos", "exp", "log", "tanh", "atan2"}


def statements(
    graph: Graph,
    assignments: Sequence[tuple[str, Scalar]],
    arrays: Mapping[str, str],
    known: Collection[int] = (),
    *,
    effects: bool = False,
    after: Mapping[int, str] | None = None,
    single: bool = False,
    also: Sequence[int] = (),
    kept: Mapping[int, Sequence[str]] | None = None,
) -> str:
    """Return text that computes the assigned values and nothing else.

    Args:
        graph: The graph.
        assignments: Left-hand sides with operators, for example "out[3] =", and their values.
        arrays: Text of an element of each input array, with {} for its index.
        known: Nodes already computed by the surrounding text.
        effects: Whether to accumulate the gradients of the weights of loops.
        after: Text that follows the declarations of nodes.
        single: Whether values are equal in all lanes of a `real`, and therefore of type `number`.
        also: Further loops to run.
        kept: Loops that need not run, with their first outputs.
    """
    targets = [(left, graph.lift(value).index) for left, value in assignments]
    learning = [i for i, node in enumerate(graph.nodes) if node[0] == "reverse" and node[1].weights]
    live = live_nodes(graph, [index for _, index in targets] + (learning if effects else []) + list(also), known)
    lines = []
    for index in live:
        if index not in known:
            ready = (kept or {}).get(index)
            lines += [_declaration(graph, index, arrays, single, ready), (after or {}).get(index, "")]
    lines += [f"{left} {_name(graph, index, single)};" for left, index in targets]
    return "\n".join(line for line in lines if line)


def live_nodes(graph: Graph, roots: Sequence[int], known: Collection[int] = ()) -> list[int]:
    """Return the nodes that the roots depend on, roots included, in order; dependencies of known nodes are skipped."""
    last = max(roots, default=-1)
    marked = bytearray(last + 1)  # arguments precede the nodes that take them
    for index in roots:
        marked[index] = 1
    known = known if isinstance(known, set | frozenset) else set(known)
    for index in range(last, -1, -1):
        if marked[index] and index not in known:
            for argument in graph.arguments(index):
                marked[argument] = 1
    return [index for index, mark in enumerate(marked) if mark]


def _name(graph: Graph, index: int, single: bool) -> str:
    node = graph.nodes[index]
    if node[0] != "constant":
        return f"v{index}"
    text = f"({'number' if single else 'real'}){node[1]!r}"
    return f"({text})" if node[1] < 0 else text


def _declaration(
    graph: Graph, index: int, arrays: Mapping[str, str], single: bool, ready: Sequence[str] | None = None
) -> str:
    kind, *rest = graph.nodes[index]
    left = f"const {'number' if single else 'real'} v{index} ="

    def names(indices: Sequence[int]) -> list[str]:
        return [_name(graph, i, single) for i in indices]

    if kind == "constant":
        return ""
    if kind == "input":
        return f"{left} {arrays[rest[0]].format(rest[1])};"
    if kind == "loop":
        return _loop(index, rest[0], names(rest[1:]), ready)
    if kind == "reverse":
        return _reverse(index, rest[0], rest[1], names(rest[2:]))
    if kind == "result":
        array = "out" if graph.nodes[rest[0]][0] == "loop" else "adj"
        element = f"{array}_{rest[0]}[{rest[1]}]"
        return f"{left} {f'FIRST({element})' if single else element};"
    operation = _operation(kind, names(rest))
    return f"{left} {operation.replace('::wp::', '::one::') if single else operation};"


def _operation(kind: str, names: list[str]) -> str:
    if kind in _FORMS:
        return _FORMS[kind].format(*names)
    if kind not in _CALLS:
        raise ValueError(f"no text for the operation {kind!r}")
    return f"::wp::{kind}({', '.join(names)})"


def _loop(index: int, loop: Loop, names: list[str], ready: Sequence[str] | None = None) -> str:
    sizes = f"real out_{index}[{max(loop.outputs, 1)}]; real saved_{index}[{max(loop.saved, 1)}];"
    given = f"const real in_{index}[{max(loop.inputs, 1)}] = {{{', '.join(names) or '0'}}};"
    if ready is not None:
        return "\n".join([given, sizes, *(f"out_{index}[{i}] = {value};" for i, value in enumerate(ready))])
    scope = f"const real* in = in_{index}; real* out = out_{index}; real* saved = saved_{index};"
    return f"{given}\n{sizes}\n{{ {scope} {_weights(loop, False)}\n{loop.forward}\n(void)in; (void)saved; }}"


def _reverse(index: int, loop: Loop, of: int, names: list[str]) -> str:
    given = f"const real seed_{index}[{max(loop.outputs, 1)}] = {{{', '.join(names) or '0'}}};"
    sizes = f"real adj_{index}[{max(loop.inputs, 1)}] = {{0}};"
    scope = (
        f"const real* in = in_{of}; const real* out = out_{of}; const real* saved = saved_{of}; "
        f"const real* seed = seed_{index}; real* adj = adj_{index};"
    )
    used = "(void)in; (void)out; (void)saved; (void)seed; (void)adj;"
    return f"{given}\n{sizes}\n{{ {scope} {_weights(loop, True)}\n{loop.adjoint}\n{used} }}"


def _weights(loop: Loop, reverse: bool) -> str:
    if not loop.weights:
        return ""
    text = f"const number* weight = weights + {loop.first_weight};"
    return f"{text} const Sums weight_adj = weights_adj + {loop.first_weight};" if reverse else text


Body = Callable[[list[Scalar], list[Expression], list[Expression]], Sequence[Scalar]]
"""Returns the results of an item from the common values, those of the item's block, and those of the item."""


def mapped(
    graph: Graph, name: str, body: Body, common: Sequence[Scalar], blocks: Sequence[Sequence[Scalar]],
    items: Sequence[tuple[int, Sequence[Scalar]]],
) -> list[list[Expression]]:  # fmt: skip
    """Return the results of a function, traced once, for each of several items, computed in a loop.

    An item is skipped, with results 0, if its first number is not above 0 in any world of a vector. If it is above 0 in
    some of the worlds, the results are computed in all of them and must be finite.

    Args:
        graph: The graph of all values.
        name: Name in messages.
        body: The function.
        common: Values common to all items; numbers are folded.
        blocks: Values shared by the items of a block, equally many per block.
        items: Block index and values of each item, equally many per item; these values have no derivative.
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
