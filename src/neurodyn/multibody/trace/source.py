# SPDX-License-Identifier: Apache-2.0
"""Straight-line code for a graph in the language of Warp's native functions, and loops with traced bodies."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate

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
    kept: Mapping[int, str] | None = None,
    in_rows: bool = False,
    hoisted: list[str] | None = None,
) -> str:
    """Return code that computes the assigned values and nothing else.

    Args:
        graph: The graph.
        assignments: Left-hand sides with operators, for example "out[3] =", and their values.
        arrays: Expression of an element of each input array, with {} for its index.
        known: Nodes already computed by the surrounding code.
        effects: Whether to accumulate the gradients of the weights of loops.
        after: Code that follows the declarations of nodes.
        single: Whether values are equal in all lanes of a `real`, and therefore of type `number`.
        also: Further loops to run.
        kept: Loops that need not run, with code that fills their first outputs.
        in_rows: Whether the code is for one world: loops take their one-world form (see `Loop`), their inputs are
            written as soon as they are known, and values used only behind a gate are computed there.
        hoisted: With `in_rows`, receives the first lines, which may stand before a loop around the code.
    """
    targets = [(left, graph.lift(value).index) for left, value in assignments]
    learning = [i for i, node in enumerate(graph.nodes) if node[0] == "reverse" and node[1].weights]
    live = live_nodes(graph, [index for _, index in targets] + (learning if effects else []) + list(also), known)
    fresh = [index for index in live if index not in known]
    runs = _Runs(graph, fresh, kept or {})
    named = runs.named | {index for _, index in targets} | set(after or {})
    early = _EarlyInputs(graph, fresh, runs, [index for _, index in targets], single) if in_rows else None
    lines = early.declarations() if early else []
    if hoisted is not None:
        hoisted += lines
        lines = []
    for index in fresh:
        if graph.nodes[index][0] != "result" or index in named:
            ready = (kept or {}).get(index)
            if early and graph.nodes[index][0] == "loop":
                lines += early.gate_code(index)
            text = _declaration(graph, index, arrays, single, ready, runs, early is not None)
            if early:
                early.put(index, text, lines)
            else:
                lines += [text, (after or {}).get(index, "")]
    lines += [f"{left} {_name(graph, index, single)};" for left, index in targets]
    return _FORM.sub(r"\1" if in_rows else r"\2", "\n".join(line for line in lines if line))


_FORM = re.compile(r"#if ROWS_IN_VECTORS\n(.*?)\n#else\n(.*?)\n#endif", re.DOTALL)


def live_nodes(graph: Graph, roots: Sequence[int], known: Collection[int] = ()) -> list[int]:
    """Return the nodes that the roots depend on, roots included, in order; dependencies of known nodes are skipped."""
    last = max(roots, default=-1)
    marked = bytearray(last + 1)  # arguments precede the nodes that use them
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


_RUN = 16
"""Minimum number of consecutive results of a loop that are copied to the next loop in a loop, not one by one."""


class _Runs:
    """Runs of consecutive results that a loop takes from another: the code copies each run in one loop.

    Attributes:
        named: Nodes whose values have names in the code.
    """

    def __init__(self, graph: Graph, fresh: Sequence[int], kept: Collection[int]) -> None:
        self._graph = graph
        self._ready = {i for i in fresh if graph.nodes[i][0] in ("loop", "reverse")} | set(kept)
        self._fresh = set(fresh)
        self.named: set[int] = set()
        for index in fresh:
            if graph.nodes[index][0] not in ("loop", "reverse"):
                self.named.update(graph.arguments(index))
                continue
            given, runs = self._inputs_of(index), self._runs(index)
            self.named.update(set(given).difference(*(given[start:end] for start, end in runs)))

    def _inputs_of(self, index: int) -> Sequence[int]:
        """Return the input nodes of a loop or its reverse."""
        return self._graph.nodes[index][2 if self._graph.nodes[index][0] == "loop" else 3 :]

    def _runs(self, index: int) -> list[tuple[int, int]]:
        """Return first index and last index + 1 of each run among the inputs of a loop."""
        given, runs, start = self._inputs_of(index), [], 0
        while start < len(given):
            end = start + 1
            while end < len(given) and self._follows(given[end - 1], given[end]):
                end += 1
            if end - start >= _RUN:
                runs.append((start, end))
            start = end
        return runs

    def _follows(self, one: int, other: int) -> bool:
        a, b = self._graph.nodes[one], self._graph.nodes[other]
        if a[0] != "result" or b != ("result", a[1], a[2] + 1):
            return False
        return a[1] in self._ready and one in self._fresh and other in self._fresh

    def copy_code(self, index: int, array: str) -> tuple[list[str], set[int]]:
        """Return code that copies the runs among the inputs of a loop or its reverse to an array, and the indices."""
        given, nodes = self._inputs_of(index), self._graph.nodes
        lines: list[str] = []
        places: set[int] = set()
        for start, end in self._runs(index):
            _, of, number = nodes[given[start]]
            source = f"({_results(self._graph, of)} + {number})"
            lines.append(f"for (int i = 0; i < {end - start}; ++i) {array}[{start} + i] = {source}[i];")
            places.update(range(start, end))
        return lines, places

    def fill_code(self, index: int, array: str, single: bool) -> str:
        """Return code that declares an array with the inputs of a loop or its reverse."""
        given, nodes = self._inputs_of(index), self._graph.nodes
        runs, copied = self.copy_code(index, array)
        if not runs:
            names = ", ".join(_name(self._graph, i, single) for i in given)
            return f"const real {array}[{max(len(given), 1)}] = {{{names or '0'}}};"
        lines = [f"real {array}[{len(given)}];", *runs]
        others = [k for k in range(len(given)) if k not in copied]
        fixed = [k for k in others if nodes[given[k]][0] == "constant"]
        lines += [f"{array}[{k}] = {_name(self._graph, given[k], single)};" for k in others if k not in set(fixed)]
        if fixed:
            values = ", ".join(repr(nodes[given[k]][1]) for k in fixed)
            lines.append(
                f"{{ static const int at[] = {{{str(fixed)[1:-1]}}}; static const number fixed[] = {{{values}}};"
                f" for (int i = 0; i < {len(fixed)}; ++i) {array}[at[i]] = fixed[i]; }}"
            )
        return "\n".join(lines)


class _EarlyInputs:
    """Writes loop inputs as soon as they are known, and values used only behind a loop's gate (see `Loop`) behind it.

    A value that waits for its loop costs a store and a load; values behind a closed gate cost nothing.
    """

    def __init__(self, graph: Graph, fresh: Sequence[int], runs: _Runs, targets: Collection[int], single: bool) -> None:
        self._graph, self._runs, self._single = graph, runs, single
        self._loops = [i for i in fresh if graph.nodes[i][0] == "loop"]
        self._fixed: list[str] = []
        self._writes: dict[int, list[str]] = {}
        for loop in self._loops:
            whole = runs.copy_code(loop, "")[1]
            for k, index in enumerate(graph.nodes[loop][2:]):
                if k not in whole:
                    text = f"in_{loop}[{k}] = {_name(graph, index, single)};"
                    fixed = graph.nodes[index][0] == "constant"
                    (self._fixed if fixed else self._writes.setdefault(index, [])).append(text)
        self._gates: dict[int, dict[int, list[str]]] = {i: {} for i in self._loops}
        self._behind = self._find(fresh, targets)

    def _find(self, fresh: Sequence[int], targets: Collection[int]) -> dict[int, tuple[int, int]]:
        """Return, for each node that is only used behind one gate, the loop and that gate."""
        users: dict[int, set[tuple[int, int] | None]] = {index: {None} for index in targets}
        places: dict[int, tuple[int, int]] = {}
        for index in reversed(fresh):  # users of a node come after it
            node = self._graph.nodes[index]
            if node[0] == "loop":
                behind = {
                    k: (index, gate) for gate, first, end in node[1].gates for k in range(first, end) if k != gate
                }
                for k, argument in enumerate(node[2:]):
                    users.setdefault(argument, set()).add(behind.get(k))
                continue
            (own, *more) = users.get(index, {None})
            if own is not None and not more and node[0] != "reverse":
                places[index] = own
            for argument in self._graph.arguments(index):
                users.setdefault(argument, set()).add(places.get(index))
        return places

    def declarations(self) -> list[str]:
        """Return code that declares the arrays, with the constants in them."""
        return [*(f"real in_{i}[{max(len(self._graph.nodes[i]) - 2, 1)}];" for i in self._loops), *self._fixed]

    def put(self, index: int, text: str, lines: list[str]) -> None:
        """Add a node's code and the copies of its value to the lines, or to those behind its gate."""
        texts = [text, *self._writes.get(index, [])]
        if index in self._behind:
            loop, gate = self._behind[index]
            self._gates[loop].setdefault(gate, []).extend(texts)
        else:
            lines.extend(texts)

    def gate_code(self, loop: int) -> list[str]:
        """Return the code that must precede a loop: values behind its gates, and runs of results of other loops."""
        lines = self._runs.copy_code(loop, f"in_{loop}")[0]
        for gate, texts in self._gates[loop].items():
            lines += [f"if (in_{loop}[{gate}] > (real)0) {{", *texts, "}"]
        return lines


def _results(graph: Graph, index: int) -> str:
    """Return the name of the array with the results of a loop or its reverse."""
    return f"{'out' if graph.nodes[index][0] == 'loop' else 'adj'}_{index}"


def _declaration(
    graph: Graph, index: int, arrays: Mapping[str, str], single: bool, ready: str | None, runs: _Runs, early: bool
) -> str:
    kind, *rest = graph.nodes[index]
    left = f"const {'number' if single else 'real'} v{index} ="
    if kind == "constant":
        return ""
    if kind == "input":
        return f"{left} {arrays[rest[0]].format(rest[1])};"
    if kind == "loop":
        return _loop(index, rest[0], "" if early else runs.fill_code(index, f"in_{index}", single), ready)
    if kind == "reverse":
        return _reverse(index, rest[0], rest[1], runs.fill_code(index, f"seed_{index}", single))
    if kind == "result":
        element = f"{_results(graph, rest[0])}[{rest[1]}]"
        return f"{left} {f'FIRST({element})' if single else element};"
    operation = _operation(kind, [_name(graph, i, single) for i in rest])
    return f"{left} {operation.replace('::wp::', '::one::') if single else operation};"


def _operation(kind: str, names: list[str]) -> str:
    if kind in _FORMS:
        return _FORMS[kind].format(*names)
    if kind not in _CALLS:
        raise ValueError(f"no text for the operation {kind!r}")
    return f"::wp::{kind}({', '.join(names)})"


def _loop(index: int, loop: Loop, given: str, ready: str | None) -> str:
    sizes = f"real out_{index}[{max(loop.outputs, 1)}]; real saved_{index}[{max(loop.saved, 1)}];"
    if ready is not None:
        return f"{given}\n{sizes}\n{ready}"
    scope = f"const real* in = in_{index}; real* out = out_{index}; real* saved = saved_{index};"
    return f"{given}\n{sizes}\n{{ {scope} {_weights(loop, False)}\n{loop.forward}\n(void)in; (void)saved; }}"


def _reverse(index: int, loop: Loop, of: int, given: str) -> str:
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


Body = Callable[[list[Scalar], list[list[Expression]], list[Scalar]], Sequence[Scalar]]
"""Returns the results of an item from the common values, those of the item's blocks, and those of the item."""

Gate = Callable[[list[Scalar], list[list[Expression]], list[Scalar]], Scalar]
"""Returns a number above 0 for items to compute."""


def _first(_: list[Scalar], __: list[list[Expression]], item: list[Scalar]) -> Scalar:
    return item[0]


def map_in_loop(
    graph: Graph, name: str, body: Body, common: Sequence[Scalar], blocks: Sequence[Sequence[Scalar]],
    items: Sequence[tuple[Sequence[int], Sequence[Scalar]]], gate: Gate = _first,
) -> list[list[Expression]]:  # fmt: skip
    """Return the results of a function, traced once, for each of several items, computed in a loop.

    An item is skipped, with results 0, if its gate is not above 0 in any world of a vector. If it is above 0 in some of
    the worlds, the results are computed in all of them and must be finite.

    Args:
        graph: The graph of all values.
        name: Name in messages.
        body: The function.
        common: Values common to all items; numbers are folded.
        blocks: Values shared by items.
        items: Block indices and values of each item: the same number of each for all items, and blocks of equal length
            at the same position. The values have no derivative; if all are numbers, they become a table in the code.
        gate: Selects the items to compute; by default those whose first value is above 0.
    """
    inner = Graph()
    traced = [value for value in common if isinstance(value, Expression)]
    places = iter(inner.inputs("common", len(traced)))
    given = [next(places) if isinstance(value, Expression) else value for value in common]
    ends = len(items[0][0])
    seen = [inner.inputs(f"block{end}", len(blocks[at])) for end, at in enumerate(items[0][0])]
    columns = list(zip(*(values for _, values in items), strict=True))
    moving = [any(isinstance(value, Expression) for value in column) for column in columns]
    item: list[Scalar] = [
        inner.input("item" if moves else "table", sum(one == moves for one in moving[:place]))
        for place, moves in enumerate(moving)
    ]
    results = list(body(given, seen, item))
    passes = inner.lift(gate(given, seen, item))
    seeds = inner.inputs("seed", len(results))
    wanted = [*inner.inputs("common", len(traced)), *(x for block in seen for x in block)]
    gradients = pull_back([inner.lift(x) for x in results], seeds, wanted)
    own = [value for _, values in items for value, moves in zip(values, moving, strict=True) if moves]
    fixed = [float(value) for _, values in items for value, moves in zip(values, moving, strict=True) if not moves]
    starts = list(accumulate((len(block) for block in blocks), initial=len(traced)))
    tables = "\n".join(
        f"static const {kind} {what}[] = {{{', '.join(map(repr, row)) or '0'}}};"
        for what, kind, row in (("of", "int", [starts[at] for places, _ in items for at in places]),
                                ("numbers", "number", fixed))
    )  # fmt: skip
    kinds = ("common", "item", "table", "seed", *(f"block{end}" for end in range(ends)))
    arrays = {kind: f"{kind}[{{}}]" for kind in kinds}
    at = " ".join(f"const real* block{end} = in + of[{ends} * k + {end}]; (void)block{end};" for end in range(ends))
    scope = f"""{tables} (void)numbers;
for (int k = 0; k < {len(items)}; ++k) {{
const real* common = in; const real* item = in + {starts[-1]} + {sum(moving)} * k; (void)common; (void)item;
const number* table = numbers + {len(moving) - sum(moving)} * k; (void)table;
{at}
real passes; {{ {statements(inner, [("passes =", passes)], arrays)} }}
"""
    forward = (
        f"{scope}real* made = out + {len(results)} * k;\nif (ANY(passes > (real)0)) {{\n"
        f"{statements(inner, [(f'made[{i}] =', x) for i, x in enumerate(results)], arrays)}\n"
        f"}} else {{ for (int i = 0; i < {len(results)}; ++i) made[i] = (real)0; }}\n}}"
    )
    lefts = [f"by_common[{i}] +=" for i in range(len(traced))]
    lefts += [f"by_block{end}[{i}] +=" for end, block in enumerate(seen) for i in range(len(block))]
    back = " ".join(f"real* by_block{end} = adj + (block{end} - in);" for end in range(ends))
    adjoint = (
        f"const real* seeds = seed;\n{scope}if (ANY(passes > (real)0)) {{\n"
        f"const real* seed = seeds + {len(results)} * k; real* by_common = adj; (void)by_common; {back}\n"
        f"{statements(inner, list(zip(lefts, gradients, strict=True)), arrays)}\n}}\n}}"
    )
    loop = Loop(
        name=name, inputs=starts[-1] + len(own), outputs=len(results) * len(items), saved=0, forward=forward,
        adjoint=adjoint, fixed=len(own),
    )  # fmt: skip
    values = apply_loop(graph, loop, [*traced, *(x for values in blocks for x in values), *own])
    return [values[len(results) * k : len(results) * (k + 1)] for k in range(len(items))]
