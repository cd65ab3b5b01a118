# SPDX-License-Identifier: Apache-2.0
from . import (
    cli as cli,
    cluster as cluster,
    control as control,
    core as core,
    data as data,
    dynamics as dynamics,
    estimate as estimate,
    evaluate as evaluate,
    geometry as geometry,
    identify as identify,
    interop as interop,
    learn as learn,
    multibody as multibody,
    nets as nets,
    policy as policy,
    report as report,
    robots as robots,
    sim as sim,
    solvers as solvers,
    tasks as tasks,
    walking as walking,
)
from .core.errors import InputError as InputError
from .core.provenance import __version__ as __version__
from .dynamics.artifact import load as load
from .dynamics.batch import (
    Control as Control,
    Environment as Environment,
    State as State,
    Step as Step,
    Trajectory as Trajectory,
    Window as Window,
)
from .dynamics.interface import Dynamics as Dynamics
