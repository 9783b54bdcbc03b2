"""The protocol of the manifest log, in all interleavings; the model is model/manifest_log.py."""

from __future__ import annotations

import pytest
from model.manifest_log import MUTANTS, Model, explore, mutate

FIRST_BUILDS = Model(("cacheable", "submit"))
# With a healer as well: soak/model.py.
SLEEPERS = Model(("cacheable", "submit"), healer=False, outsleeps_grace=True)
# What only matters to builders that are paused for longer than the grace time.
OF_SLEEPERS = [
    "collects what it has not hidden",
    "collects without looking again",
    "publishes without a look at its parts",
]
LATER_BUILDS = Model(("submit", "submit"), published_before=True)
MODELS = {
    "first builds": FIRST_BUILDS,
    "later builds": LATER_BUILDS,
    "cacheable": Model(("cacheable", "cacheable")),
    "paused for longer than the grace time": SLEEPERS,
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_nothing_is_lost_in_any_interleaving(model):
    found = explore(model)
    assert not found.fault, "\n".join([found.fault, *found.trace])
    assert found.states > 5000


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_the_model_notices_each_mutant(mutant):
    model = SLEEPERS if mutant in OF_SLEEPERS else FIRST_BUILDS
    found = explore(mutate(model, mutant))
    assert found.fault and found.trace


@pytest.mark.parametrize(
    "mutant, fault",
    [
        ("renames instead of linking", "got other bytes"),
        ("overwrites the number", "with nonsense inside"),
        ("links an unflushed entry", "with nonsense inside"),
        ("publishes unflushed parts", "without its parts"),
        ("returns before the directory is flushed", "would lose what builder"),
        ("believes the reply of link", "its parts are not there"),
        ("collects without grace", "its parts are not there"),
        ("heals by deleting first", "its parts are not there"),
        ("heals whatever is current", "buries a build that is sound"),
        ("looks, then notes the number", "should have been adopted"),
    ],
)
def test_mutants_fail_for_their_own_reason(mutant, fault):
    assert fault in explore(mutate(FIRST_BUILDS, mutant)).fault
