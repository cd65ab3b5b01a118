# SPDX-License-Identifier: Apache-2.0
"""Flags shared by verbs: registry names, machine resources, and recording files.

A verb's flags are the fields of its request (`command`).
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeVar

from tyro.conf import UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from neurodyn.cli.terminal.console import ProgressBar
from neurodyn.core.artifacts import PRETRAINED, require_writable
from neurodyn.core.errors import InputError, unknown
from neurodyn.core.progress import stage
from neurodyn.core.registry import Registry
from neurodyn.core.requests import arguments_of, field_docs, flag_of

if TYPE_CHECKING:
    from neurodyn.core.workers import Executor
    from neurodyn.learn.tracking import Logger
    from neurodyn.report.recording import Recording


_Value = TypeVar("_Value", str, int)


def flag_read_by(read: Callable[[str], _Value], metavar: str, kind: type[_Value]) -> PrimitiveConstructorSpec[_Value]:
    """Return a type annotation for a flag with one value.

    Args:
        read: Converts a text to a value. Its InputError bypasses the parser, like a verb's.
        metavar: Name of the value in the help.
        kind: Type of the value.
    """
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda given: read(given[0]),
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def registry_name(registry: Registry[Any], *others: Registry[Any]) -> PrimitiveConstructorSpec[str]:
    """Return an annotation for a `str` flag that takes the names in one or several registries.

    Names are looked up when the flag is read: a plug-in may register more after the verb's import.
    """
    every = (registry, *others)

    def require_name(given: str) -> str:
        if not others:
            registry.require(given)
        elif not any(given in one for one in every):
            raise unknown(
                " or ".join(one.what for one in every) if len(every) < 3 else "format",
                given,
                {name for one in every for name in one},
            )
        return given

    return flag_read_by(require_name, f"{{{','.join(name for one in every for name in one)}}}", str)


def _logger(given: str) -> str:
    from neurodyn.learn.tracking import require_name

    require_name(given)
    return given


_Logger = Annotated[str, flag_read_by(_logger, "tensorboard|wandb|none|MODULE:CLASS", str)]
ResultLogger = Annotated[
    _Logger | None,
    arg(help="Also log the result to the run's tracker: wandb (continues the training's run) or tensorboard."),
]
"""Tracker of a result."""
JsonFile = Annotated[Path | None, arg(help="File for the result as JSON.")]
ClusterAddress = Annotated[
    str | None,
    arg(
        help='Distribute the work over a Ray cluster (needs the extra `cluster`): "auto" for the one this machine '
        'belongs to, HOST:PORT of its head, or "local" to start one here. Results do not depend on it.'
    ),
]
Workers = Annotated[int | None, arg(help="Cluster workers, each on one core; by default one per core.")]
WorkerMemory = Annotated[float | None, arg(help="Memory limit of a worker [GB]; by default only the machine's.")]


MOST_THREADS = 4096
"""More than any machine has cores."""


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        raise InputError(f"--threads is {text!r}; valid: a whole number from 1 to {MOST_THREADS:,}")
    return int(text)


_Threads = Annotated[int, flag_read_by(_count, "N", int)]
Threads = _Threads | None
"""Number of cores for a verb; None for its default."""


def _device(name: str) -> str:
    if name != "cpu":  # always available; importing torch takes a second
        from neurodyn.learn.devices import require_device

        try:
            require_device(name)
        except InputError as error:
            raise InputError(f"--{error}") from None
    return name


Device = Annotated[str, flag_read_by(_device, "cpu|cuda|cuda:N", str)]
"""Device of a verb: an available torch device."""


def _gpus(given: list[str]) -> tuple[int, ...]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise InputError("--gpu-ids: torch finds no CUDA GPU; valid: --device cpu, here")
    if given == ["all"]:
        return tuple(range(count))
    known = {str(number) for number in range(count)}
    if not given or not known.issuperset(given) or len(set(given)) < len(given):
        valid = f"all, or some of 0 to {count - 1}, each once" if count > 1 else "all, or 0"
        raise InputError(f"--gpu-ids is {' '.join(given) or 'empty'}; valid: {valid}")
    return tuple(map(int, given))


GpuIds = Annotated[
    tuple[int, ...],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="all|N [N ...]",
        instance_from_str=_gpus,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(one) for one in value],
    ),
    arg(help="GPUs to train on, one process with its own share of the work per GPU: 0 1, or all."),
]
"""GPUs of a training, one process per GPU, numbered within CUDA_VISIBLE_DEVICES."""


def _net() -> Any:
    from neurodyn.nets.networks import NETWORKS

    return Annotated[str, registry_name(NETWORKS)]


def _base(given: str) -> str:
    from neurodyn.dynamics.neural.base_prediction import BASES

    if given in BASES or given.startswith(PRETRAINED) or Path(given).exists():
        return given
    raise unknown("base", given, BASES, "the run of a hybrid model")


FLAG_TYPES: Mapping[str, Callable[[], Any]] = {
    "device": lambda: Device,
    "threads": lambda: _Threads,
    "logger": lambda: _Logger,
    "net": _net,
    "base": lambda: Annotated[str, flag_read_by(_base, "free|impulses|contact|RUN", str)],
    "each": lambda: UseAppendAction[tuple[str, ...]],
}
"""Flag types that a request names (see `core.requests.Flag`), built when a verb that uses one is loaded."""


def own_device(device: str, gpu_ids: tuple[int, ...]) -> str:
    """Return the device of this process.

    Raises:
        InputError: `learn.devices` cannot place the processes, or both flags name a device.
    """
    if gpu_ids and device not in {"cpu", "cuda"}:
        raise InputError(f"--device {device} and --gpu-ids both name GPUs; give one")
    from neurodyn.learn.devices import current_ranks

    return current_ranks().device(device, gpu_ids)


@contextlib.contextmanager
def cluster_of(address: str | None, workers: int | None, memory: float | None) -> "Iterator[Executor | None]":
    """Yield the cluster given by --cluster, --workers and --worker-memory; None for this machine alone."""
    if address is None:
        if (workers, memory) != (None, None):
            raise InputError("--workers and --worker-memory are for a cluster; valid: with --cluster")
        yield None
        return
    from neurodyn.cluster.workers import Cluster

    with Cluster(address, workers=workers, memory=memory) as cluster:
        yield cluster


def out_of_memory(error: Exception) -> InputError | None:
    """Return an out-of-memory error of a device in one line; None for other errors."""
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return InputError(f"too little memory{detail}; valid: fewer worlds, smaller batches, fewer --threads")
    if "torch" not in sys.modules:
        return None
    from neurodyn.learn.devices import lacks_memory

    if not lacks_memory(error):
        return None
    first = str(error).partition(". ")[0].strip()
    return InputError(f"--device: too little memory ({first}); valid: fewer worlds, smaller batches, another device")


Format = Literal["html", "mp4", "gif", "rrd"]
"""Format of a recording's file."""
FormatFlag = Annotated[
    Format | None,
    arg(
        help="html, mp4 (needs the extra `view`), gif, or rrd for Rerun's viewer (needs the extra `rerun`); by default "
        "from the file's suffix, else html."
    ),
]

_RECORD = 0.4
"""Share of the progress for computing motion; writing the file takes the rest."""


@dataclass(frozen=True)
class RecordingFile:
    """The file of a recording, and its format."""

    path: Path
    kind: Format


def recording_file(
    run: str, stem: str, out: Path | None, asked: Format | None, resolve: Callable[[str], Path]
) -> RecordingFile:
    """Return the file for a recording of a run or policy; by default STEM.FORMAT in its folder.

    `resolve` returns the folder.

    Raises:
        InputError: The file cannot be written, its suffix is unknown, or its encoder is not installed.
    """
    from neurodyn.report.recording import default_output
    from neurodyn.report.recording_files import format_of, require_rerun

    kind = format_of(out, asked)
    if kind == "rrd":
        require_rerun()
    path = default_output(run, stem, f".{kind}", resolve) if out is None else out
    require_writable(path)
    return RecordingFile(path, kind)


def keep_recording(
    run: str, logger: "Logger | None", file: RecordingFile | None, record: "Callable[[], Recording]"
) -> "Recording":
    """Record a run or policy, write the file, if any, and show it in the tracker of the run, if any.

    Raises:
        InputError: The motion cannot be computed, the file cannot be written, or the tracker cannot work.
    """
    from neurodyn.learn.metrics import require_followed, show_results
    from neurodyn.report.recording_files import write_recording

    require_followed(logger, run)
    with ProgressBar(f"recording {run}"):
        with stage(0.0, 1.0 if file is None else _RECORD):
            recording = record()
        if file is not None:
            with stage(_RECORD, 1.0):
                write_recording(recording, file.path, file.kind)
    if file is not None:
        show_results(run, logger, films=[file.path])
    return recording


S = TypeVar("S")


def command(
    request: type[S], *, settings: type | None = None, names: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that turns a function of a request into a verb.

    The first field is the verb's argument, the others are its flags, typed by their `core.requests.Flag`, or else by
    the field; their help is the docstring below the field. Keyword arguments of the function are terminal-only flags,
    whose help stands in their annotations.

    Args:
        request: Class of the request.
        settings: Settings, some fields of which are also flags. The function receives given values as `**flags`.
        names: These fields.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = {name: one for name, one in inspect.signature(verb).parameters.items() if one.kind is one.KEYWORD_ONLY}
        overrides = {} if settings is None else _overrides(settings, names)

        @functools.wraps(verb)
        def call(*args: Any, **kwargs: Any) -> None:
            extra = {name: kwargs.pop(name) for name in own if name in kwargs}
            given = {name: kwargs.pop(name) for name in overrides if name in kwargs}
            verb(request(*args, **kwargs), **extra, **{name: x for name, x in given.items() if x not in (None, ())})

        flags = _flags(request) | overrides | own
        call.__dict__ |= {"request": request, "__signature__": inspect.Signature(list(flags.values()))}
        return call

    return decorate


def _flags(request: type) -> dict[str, inspect.Parameter]:
    """Return a request's fields as terminal parameters, by name, without Python-only fields."""
    flags: dict[str, inspect.Parameter] = {}
    meanings = field_docs(request)
    for one in arguments_of(request):
        kind, flag = terminal_type(one), flag_of(one.annotation)
        if kind is not None:
            how = one.KEYWORD_ONLY if flags else one.POSITIONAL_ONLY
            named = one.name if flag is None else flag.argument or one.name
            explained = Annotated[kind, arg(help=meanings.get(one.name))]
            flags[one.name] = one.replace(name=named, annotation=explained, kind=how)
    return flags


def _overrides(settings: type, names: Collection[str]) -> dict[str, inspect.Parameter]:
    """Return settings fields as optional flags, whose help states the default unless the field's docstring does."""
    flags, meanings = {}, field_docs(settings)
    for one in arguments_of(settings):
        if one.name not in names:
            continue
        meaning, default = meanings.get(one.name, ""), one.default
        if default not in (None, ()) and "by default" not in meaning:
            meaning = f"{meaning.rstrip('.')}; by default {_default_text(default)}."
        kind = one.annotation if default == () else Optional[one.annotation]  # noqa: UP045
        flags[one.name] = one.replace(
            annotation=Annotated[kind, arg(help=meaning)], default=() if default == () else None, kind=one.KEYWORD_ONLY
        )
    return flags


def _default_text(default: object) -> str:
    """Return a default in words: switches are on or off, counts have separators."""
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:,}" if isinstance(default, int) else str(default)


def terminal_type(field: inspect.Parameter) -> Any:
    """Return the flag type of a field; None for a Python-only field."""
    flag = flag_of(field.annotation)
    if flag is None:
        return field.annotation
    if not isinstance(flag.kind, str):
        return flag.kind
    kind = FLAG_TYPES[flag.kind]()
    return Optional[kind] if field.default is None else kind  # noqa: UP045 - `|` takes no Annotated
