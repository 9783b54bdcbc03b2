"""What users copy works: examples/ and the snippets of README.md, in this process."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from tf_support import tf

ROOT = Path(__file__).resolve().parents[1]


def load(path, monkeypatch):
    """An example as a module; it is gone from sys.modules after the test."""
    name = f"example_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def demo(monkeypatch):
    return load(ROOT / "examples" / "demo.py", monkeypatch)


def test_demo_builds_then_reuses(demo, tmp_path, capsys):
    demo.start(tmp_path, 700, "built")
    cold = capsys.readouterr().out
    demo.start(tmp_path, 700, "reused")
    warm = capsys.readouterr().out
    for name in ("training set", "validation set", "image set"):
        assert re.search(rf"{name} +built: ", cold)
        assert re.search(rf"{name} +reused: ", warm)
    with pytest.raises(SystemExit, match="reused, not built"):
        demo.start(tmp_path, 700, "built")


def test_demo_resumes_on_two_ranks(demo, tmp_path, capsys):
    states = [tmp_path / "rank0.npz", tmp_path / "rank1.npz"]
    for rank, state in enumerate(states):
        demo.train(tmp_path / "cache", 701, rank, state)
    capsys.readouterr()
    for rank, state in enumerate(states):
        demo.resume(tmp_path / "cache", 701, rank, state)
    assert capsys.readouterr().out.count(": OK, ") == 4

    noted = dict(np.load(states[0]))
    noted["start_epoch"][0] += 1
    np.savez(states[0], **noted)
    with pytest.raises(SystemExit, match="start_epoch: other records came"):
        demo.resume(tmp_path / "cache", 701, 0, states[0])


def test_keras_script_resumes_as_if_never_stopped(tmp_path, monkeypatch, capsys):
    script = load(ROOT / "examples" / "keras_script.py", monkeypatch)
    script.main([str(tmp_path / "stopped"), "--steps", "50"])
    assert "resumed" not in capsys.readouterr().out
    resumed, _ = script.main([str(tmp_path / "stopped"), "--steps", "150"])
    assert "resumed after step 50, at record 1600" in capsys.readouterr().out
    whole, results = script.main([str(tmp_path / "whole"), "--steps", "150"])
    for left, right in zip(resumed.get_weights(), whole.get_weights()):
        np.testing.assert_allclose(left, right, rtol=1e-5)
    assert results["accuracy"] > 0.9


def test_custom_data_ref_resumes(monkeypatch):
    epochs, left = load(ROOT / "examples" / "custom_data_ref.py", monkeypatch).main()
    lines = {b"line %d" % number for number in range(1, 12, 2)}
    assert [set(epoch) for epoch in epochs] == [lines, lines]
    assert epochs[0] != epochs[1]
    assert left == epochs[1][4:]


def test_determined_example(demo, tmp_path, monkeypatch):
    """With a stand-in for Determined; `make test-client` runs it with the real one."""
    determined = types.ModuleType("determined")
    determined.keras = types.ModuleType("determined.keras")
    determined.keras.TFKerasTrial = object
    monkeypatch.setitem(sys.modules, "determined", determined)
    monkeypatch.setitem(sys.modules, "determined.keras", determined.keras)
    module = load(ROOT / "examples" / "determined" / "model_def.py", monkeypatch)

    class Context(demo.StandInContext):
        def get_hparam(self, name):
            return self.get_hparams()[name]

        def wrap_model(self, model):
            return model

        wrap_optimizer = wrap_model

    def start(steps_completed):
        context = Context(tmp_path)
        context.env.steps_completed = steps_completed
        trial = module.OneVarTrial(context)
        return trial, trial.build_training_data_loader(), trial.build_validation_data_loader()

    trial, training_set, validation_set = start(0)
    model = trial.build_model()
    losses = model.fit(
        training_set,
        steps_per_epoch=20,  # 160 of 100 records: more than one epoch
        epochs=2,
        shuffle=False,
        validation_data=validation_set,
        verbose=0,
    ).history["val_loss"]
    assert losses[1] < losses[0] < 1

    assert sum(1 for _ in validation_set) == 13
    assert [len(x) for x, _ in training_set.take(14)] == [8] * 14
    _, resumed, _ = start(40)
    assert resumed.ydl_stream.start == (3, 20)


def test_determined_example_is_configured_for_this_storage():
    text = (ROOT / "examples" / "determined" / "const.yaml").read_text()
    paths = re.findall(r"container(?:_storage)?_path: (\S+)", text)
    assert len(paths) == 2 and len(set(paths)) == 1
    assert "type: shared_fs" in text


def test_readme_snippets(tmp_path, monkeypatch):
    """In order, in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(snippets) == 3
    names = {"__name__": "readme"}
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"README.md, snippet {number}", "exec"), names)
    made = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("cache/*/*.ydl"))
    assert made == ["cache/cubes/1.ydl", "cache/hundred/1.ydl", "cache/squares/1_train.ydl"]
    assert names["batch"]["cube"].dtype == np.int64
    assert isinstance(names["dataset"], tf.data.Dataset)


def test_readme_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.*)", text, re.M)
    }
    for target in targets:
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith("https://"):
            # bench/ is not part of the sdist, from which these tests run as well.
            assert (ROOT / target).exists() or target.startswith("bench/"), target
