"""Programs that leave the process: SavedModels, with shapes that are not known and with gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from conftest import ROOT
from functional import assert_close
from pickles import check_pickles

import tenon.tensorflow as tn


class Model(tf.Module):
    """Rows, a formula of the table, a formula, an update, a loss with its gradient made beside it."""

    def __init__(self) -> None:
        self.gamma = tf.Variable(np.linspace(0.5, 1.5, 8))
        self.mean = tf.Variable(tf.zeros(8), trainable=False)
        self.var = tf.Variable(tf.ones(8), trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float64), tf.TensorSpec([None], tf.int64)])
    def __call__(self, x: Any, target: Any) -> Any:
        x = tn.layer_norm(x, self.gamma)
        x = tn.fuse("silu(x) * x + mean(x, -1)")(tn.gelu(x))
        x, _, _ = tn.batch_norm(x, None, None, self.mean, self.var, act="silu")
        return tn.cross_entropy(x, target) + tn.sum(x)


READ = """
import sys
import numpy as np
import tensorflow as tf
import tenon.tensorflow

model = tf.saved_model.load(sys.argv[1])
given = np.load(sys.argv[2])
with tf.GradientTape() as tape:
    loss = model(given["x"], given["target"])
np.savez(sys.argv[3], loss=loss, d=tape.gradient(loss, model.gamma), mean=model.mean)
"""


def test_a_new_process(tmp_path: Path) -> None:
    model = Model()
    tf.saved_model.save(model, str(tmp_path / "model"))
    random = np.random.default_rng(0)
    x, target = random.standard_normal((5, 8)), random.integers(0, 8, 5)
    np.savez(tmp_path / "given.npz", x=x, target=target)
    command = [sys.executable, "-c", READ, *(str(tmp_path / name) for name in ("model", "given.npz", "made.npz"))]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    made = np.load(tmp_path / "made.npz")
    with tf.GradientTape() as tape:
        loss = model(x, target)
    assert_close([made["loss"], made["d"]], [loss, tape.gradient(loss, model.gamma)], "f64")
    assert_close(made["mean"], model.mean)
    assert np.any(made["mean"] != 0)


def test_pickle() -> None:
    check_pickles(tn.fuse)
