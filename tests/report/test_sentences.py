# SPDX-License-Identifier: Apache-2.0
"""From figures of an adaptation to its sentences."""

from typing import Any

import pytest

from neurodyn.identify.result import (
    DelayFigures,
    IdentificationFigures,
    IdentifiedParameter,
    InPriorDeviations,
    JointRegion,
    LogDifference,
    Reference,
    Rung,
    TriedStructure,
    UnseenPayload,
)
from neurodyn.report.sentences import phrase, sentences, usable

JOINTS = "joints [rad or m]"


def quantity(
    name: str, value: float, low: float, high: float, nominal: float = 0.0, *, x: float = 2.0, **more: Any
) -> IdentifiedParameter:
    """A quantity whose value is x prior deviations from the declared one."""
    scaled = InPriorDeviations(value=x, interval=[x - 0.5, x + 0.5], bounds=[-8.0, 8.0])
    return IdentifiedParameter(name=name, value=value, interval=[low, high], nominal=nominal, in_prior=scaled, **more)


def silent(name: str) -> IdentifiedParameter:
    return quantity(name, 0.0, -1.0, 1.0, x=0.0, determined=False)


def rungs(
    declared: float | None, identified: float | None, group: str = JOINTS,
    also: tuple[float, float] | None = None, **more: Any,
) -> list[Rung]:  # fmt: skip
    tests = [{group: [declared]}, {group: [identified]}]
    for test, error in zip(tests, also or (), strict=False):
        test[JOINTS] = [error]
    return [
        Rung(name="declared", kept=True, reason="", errors={group: [9.9]}, test=tests[0]),
        Rung(name="identified", kept=True, reason="", errors={group: [9.9]}, test=tests[1], **more),
    ]


def figures(*parameters: IdentifiedParameter, **more: Any) -> IdentificationFigures:
    given = {"rungs": rungs(0.24, 0.01), "horizons": [1.0], "chosen": "identified", "verdict": "ok"} | more
    return IdentificationFigures(robot="arm", parameters=list(parameters), **given)


PAYLOAD = quantity("payload.mass", 1.0, 0.86, 1.14, unit="kg", x=5.0)
ELBOW = quantity("elbow.friction", 5.71, 5.49, 5.93, unit="N m", x=4.0)
WRIST = quantity("wrist.friction", 1.23, 1.11, 1.35, nominal=0.1, unit="N m", x=3.0)
DELAY = quantity("motors.delay", 0.0121, 0.0118, 0.0124, unit="s", x=2.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (figures(PAYLOAD), "It carries 1.00 kg (0.86 to 1.14)."),
        (figures(quantity("payload.hand.mass", 1.0, 0.6, 1.4, unit="kg")), "It carries 1.0 kg (0.6 to 1.4) on hand."),
        (figures(ELBOW), "Friction at elbow is 5.7 N m (5.5 to 5.9), declared 0."),
        (figures(DELAY), "Commands act 12.1 ms (11.8 to 12.4) late, declared 0."),
        (
            figures(ELBOW, WRIST),
            "Friction: elbow 5.7 N m (5.5 to 5.9), wrist 1.23 N m (1.11 to 1.35); declared 0 and 0.1.",
        ),
        (figures(quantity("arm.mass_scale", 1.12, 1.04, 1.2, 1.0)),
         "Mass of arm is 1.12 times (1.04 to 1.20), declared 1."),
        (figures(quantity("actuator.hip.kp", 791.3, 500, 1100, 2000, unit="N m/rad")),
         "Servo stiffness (kp) of hip is 800 N m/rad (500 to 1100), declared 2000."),
        (figures(quantity("contact.friction", 0.45, 0.41, 0.49, 1.0, unit="1")),
         "Friction of the floor is 0.45 (0.41 to 0.49), declared 1."),
        (figures(quantity("gravity.z", -9.7, -9.75, -9.65, -9.81)),
         "gravity.z is -9.70 (-9.75 to -9.65), declared -9.81."),
        (figures(quantity("elbow.friction", 0.1, -0.1, 0.3)), "No quantity clearly differs from its declared value."),
        (figures(quantity("wrist.kp", 1490.0, 1400, 1490, 1000, bound=True)),
         "wrist.kp (1490, declared 1000) ends at its bound: something else may differ."),
        (figures(PAYLOAD, carrier="wrist_3"), "It carries 1.00 kg (0.86 to 1.14) on the link of wrist_3."),
        (figures(quantity("wrist.kp", 1490.0, 1400, 1490, 1000, bound=True), tried=[
            TriedStructure(name="a payload on the link of hand", kept=False, share=1.0, reason="")
         ]),
         "wrist.kp (1490, declared 1000) ends at its bound: something else may differ; tried and no better: a payload "
         "on the link of hand."),
        (figures(structure="springs in the links of ankle"),
         "The logs call for springs in the links of ankle, which the declaration lacks."),
        (figures(), "It predicts a held-out second 24 times better than the declaration."),
        (figures(rungs=rungs(0.01, 0.02)), "It predicts a held-out second 2.0 times worse than the declaration."),
        (figures(rungs=rungs(0.01, 0.0101)), "It predicts a held-out second no better than the declaration."),
        (figures(horizons=[0.5]), "It predicts held-out motion 0.5 s ahead 24 times better than the declaration."),
        (figures(rungs=rungs(0.24, 0.01, finite_fraction=0.9)),
         "It predicts a held-out second 24 times better than the declaration; 10 % of its roll-outs diverge."),
        (figures(rungs=rungs(0.24, None)), "None of its roll-outs over 1 s of held-out motion stays finite."),
        (figures(rungs=rungs(None, 0.1)),
         "It predicts a held-out second, where the roll-outs of the declaration diverge."),
        (figures(rungs=rungs(0.24, 0.01, "base [m]", also=(0.1, 0.2))),
         "Compared with the declaration it predicts, over a held-out second, the base's position 24 times better and "
         "joints 2.0 times worse."),
        (figures(rungs=rungs(0.24, None, "base [m]", also=(0.1, 0.2))),
         "Compared with the declaration it predicts, over a held-out second, joints 2.0 times worse."),
        (figures(references=[Reference(name="gru", errors={}, test={JOINTS: [0.005]})]),
         "It predicts a held-out second 24 times better than the declaration; plain network (GRU) is 2.0 times better "
         "still."),
        (figures(differences=[
            LogDifference(name="calf.friction", logs=("b", "c"), values=(0.31, 0.12), errors=6.0, deviation=0.1)
         ]),
         "The logs disagree: b and c differ in calf.friction by 6 standard errors (0.31 and 0.12)."),
        (figures(stated={f"actuator.{joint}.kp": gain for joint, gain in (("hip", 20.0), ("calf", 40.0))}),
         "Gains of servos are held as the map states them: kp 20 or 40."),
        (figures(together=[
            JointRegion(names=("hip.kp", "hip.armature"), form="ratio", value=10.0, interval=(9.8, 10.2))
         ]),
         "The ratio hip.kp / hip.armature is known to 2 %, neither alone."),
        (figures(together=[
            JointRegion(names=(f"actuator.{joint}.kd", f"actuator.{joint}.kp"), form="ratio", value=1.0,
                        interval=(0.98, 1.02))
            for joint in ("hip", "knee")
         ]),
         "The ratio kd / kp is known in 2 joints (in hip to 2 %), neither alone."),
        (figures(together=[
            JointRegion(names=(f"actuator.{joint}.gain", "actuator.ankle.gain"), form="ratio", value=1.0,
                        interval=(0.99, 1.01))
            for joint in ("hip", "knee")
         ]),
         "The ratio gain / gain is known in 2 pairs (hip.gain / ankle.gain to 1 %), neither alone."),
        (figures(DELAY, delay=DelayFigures(
            delay=0.01, delay_error=0.005, parts="delay + lag", total=0.014, total_error=0.001, split=False,
            text="delay + lag = 14 +- 1 ms; how it splits is not known",
         )),
         "Commands act late: delay + lag = 14 +- 1 ms; how it splits is not known."),
        (figures(chosen="declared"),
         "The model of arm stays as declared: no fitted model predicts held-out motion better."),
        (figures(silent("a.damping"), silent("b.damping"), silent("motors.delay"), ELBOW),
         "The logs do not determine 3 of 4 quantities, which stay as declared: damping (2), delay of commands."),
        (figures(silent("a.damping"), unseen_payload=UnseenPayload(joint="wrist", mass=0.62)),
         "The logs do not determine 1 of 1 quantities, which stays as declared: damping at a; nor do they tell whether "
         "the link of wrist carries up to 0.62 kg."),
        (figures(ELBOW, converged=False, reason="out of time"),
         "The search did not converge (out of time): all values are rough."),
    ],
)  # fmt: skip
def test_sentences_of_results(given: IdentificationFigures, said: str):
    assert said in sentences(given)


def test_the_largest_changes_come_first_and_six_sentences_are_enough():
    kinds = ("friction", "damping", "armature", "com.x")
    many = [quantity(f"j{k}.{what}", 1.0, 0.9, 1.1, x=k + 1.0) for k, what in enumerate(kinds)]
    said = sentences(figures(*many, silent("gravity.z"), structure="springs"))
    assert len(said) == 6
    assert said[0].startswith("Centre of mass of j3")
    assert said[1].startswith("Rotor inertia at j2")
    assert said[2] == "Also changed: damping at j1, friction at j0."


def test_parts_of_a_delay_whose_sum_alone_is_known_are_not_stated():
    summed = DelayFigures(
        delay=0.01, delay_error=0.005, parts="delay + lag", total=0.014, total_error=0.001, split=False, text="sum"
    )
    said = sentences(figures(DELAY, quantity("actuator.elbow.lag", 0.004, 0.003, 0.005, unit="s"), delay=summed))
    assert not any("12.1 ms" in line or "lag of elbow" in line for line in said)


def test_nothing_is_claimed_of_quantities_that_the_model_does_not_have():
    said = sentences(figures(ELBOW, PAYLOAD, chosen="declared"))
    assert not any("5.7" in line or "carries" in line for line in said)


def test_digits_are_those_that_the_interval_supports():
    assert phrase(quantity("a", 123.456, 100.0, 147.0)) == "123 (100 to 147)"
    assert phrase(quantity("a", 5.71234, 1.0, 10.0)) == "6 (1 to 10)"
    assert phrase(quantity("a", 5.71234, 5.712, 5.713)) == "5.712 (5.712 to 5.713)"
    assert phrase(IdentifiedParameter(name="a", value=5.71234, interval=None, nominal=0.0, unit="kg")) == "about 5.7 kg"


def test_a_result_that_fails_is_not_suggested_for_use():
    assert usable(figures(verdict="warning: odd"))
    assert not usable(figures(verdict="fails: of no use"))
