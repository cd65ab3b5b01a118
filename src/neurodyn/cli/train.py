# SPDX-License-Identifier: Apache-2.0
"""`neurodyn train`, `finetune`, `reproduce`, `sweep`: models from datasets."""

from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.cli.terminal.flags import GpuIds, command, own_device
from neurodyn.core.config import replaced
from neurodyn.learn.requests import FinetuneRequest, ReproduceRequest, TrainRequest

if TYPE_CHECKING:
    from neurodyn.cluster.sweep.trials import TrialOutcome


@command(TrainRequest, after={"gpu_ids": "device"})
def train(request: TrainRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Train a model on a dataset and write it to a run directory.

    Flags:
        gpu_ids: GPUs to train on, one process on each with a batch of its own: 0 1, or all.

    Example:
        neurodyn train cartpole --data cartpole.h5 --out runs/cartpole --minutes 10
        neurodyn train anymal-c --kind world-model --data walks.h5 --out runs/walks
    """
    from neurodyn.cli.terminal.console import ProgressBar, report_training
    from neurodyn.learn.train import train as train_model

    device = own_device(request.device, gpu_ids)
    with ProgressBar(f"training {request.robot} ({request.kind})") as bar:
        end = train_model(replaced(request, device=device, progress=bar))
    report_training(Path(request.out), end)


@command(FinetuneRequest, after={"gpu_ids": "device"})
def finetune(request: FinetuneRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Adapt a trained model to other data of the same robot and write it to a new run directory.

    Flags:
        gpu_ids: GPUs to train on, one process on each with a batch of its own: 0 1, or all.

    Example:
        neurodyn finetune runs/cartpole --data my-log.h5 --out runs/mine
    """
    from neurodyn.cli.terminal.console import ProgressBar, report_training
    from neurodyn.learn.train import finetune as finetune_model

    device = own_device(request.device, gpu_ids)
    with ProgressBar(f"fine-tuning {request.run}") as bar:
        end = finetune_model(replaced(request, device=device, progress=bar))
    report_training(Path(request.out), end)


@command(ReproduceRequest)
def reproduce(request: ReproduceRequest, *, json: Path | None = None) -> None:
    """Run the training of a run once more, with its settings and seed, and say whether the result is the same.

    What the run was made from is compared with its manifest first: other data, models and declarations are refused,
    other versions are named. A budget in steps gives the same bits on one machine.

    Flags:
        json: File for the result as JSON.

    Example:
        neurodyn reproduce runs/cartpole --out runs/again
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.verdict import require_usable
    from neurodyn.learn.reproduction import reproduce as train_again

    require_writable(json, text=True)
    with ProgressBar(f"reproducing {request.run}") as bar:
        found = train_again(replaced(request, progress=bar))
    if json is not None:
        write_json(json, found.plain())
        print(f"figures: {json}")
    if found.score_before is not None and found.score_now is not None:
        gap = found.score_now - found.score_before
        print(f"held-out score {found.score_before:.6g} before, {found.score_now:.6g} now (difference {gap:.3g})")
    if found.differing and found.greatest is not None:
        print(f"greatest difference of a weight or parameter: {found.greatest:.3g}")
    print(f"run: {request.out}")
    require_usable(found.verdict, Path(request.out))
    print(f"verdict: {found.verdict}")


def sweep(
    spec: Path,
    /,
    *,
    out: Path,
    cluster: str = "local",
    workers: int | None = None,
    worker_memory: float | None = None,
    json: Path | None = None,
    resume: bool = False,
) -> None:
    """Train with many settings and seeds (Ray Tune), and say which are best on validation data.

    Every trial is a run folder of its own, which evaluate, compare and reproduce take. Needs the extra `cluster`.

    Args:
        spec: File that says what is trained (train, finetune, identify, discover or policy train, with its arguments),
            which settings differ (space), who chooses them (search: grid, random or optuna), and with which seeds.
        out: Folder to write: trials, sweep.json, comparison.html.
        cluster: "local" for the cores of this machine, "auto" for the Ray cluster that it belongs to, or HOST:PORT of
            its head.
        workers: Most trials at once; by default as many as there are cores for.
        worker_memory: Most memory of a trial [GB]; by default no limit but the machine's.
        json: File for the result as JSON, beside OUT/sweep.json.
        resume: Go on with a sweep that was killed.

    Example:
        neurodyn sweep sweep.yaml --out sweeps/width
        neurodyn sweep sweep.yaml --out sweeps/width --cluster auto --resume
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.cluster.sweep.sweep import PAGE, RESULT
    from neurodyn.cluster.sweep.sweep import sweep as run
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.report import comparison_tables
    from neurodyn.report.run_comparison import LEAD, broken_lines

    require_writable(json, text=True)
    with ProgressBar(f"sweep {spec.name}") as bar:

        def told(done: int, total: int, outcome: "TrialOutcome") -> None:
            figure = outcome.figure
            what = outcome.failed or f"{'nan' if figure is None or figure.value is None else f'{figure.value:.4g}'}"
            bar.update(done / total, f"{done} of {total} trials; the last: {what}")

        result = run(spec, out, cluster=cluster, workers=workers, memory=worker_memory, resume=resume, told=told)
    print_tables(LEAD, comparison_tables(result.comparison), *broken_lines(result.comparison))
    if json is not None:
        write_json(json, result.plain())
    best, own = result.best, ", ".join(f"{name} {value}" for name, value in result.best.values.items())
    print(f"figures: {out / RESULT}; report: {out / PAGE}")
    print(f"best by {result.figure}: {best.mean:.4g} with {own}; run: {best.run}")
