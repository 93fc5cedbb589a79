"""Operators from a shared object reach torch at once, with everything that the contract language allows."""

from __future__ import annotations

import hashlib
import inspect
import os
import pathlib
import shutil
import subprocess
import sys

import here
import pytest
import torch
from cases import assert_close
from plugin import compile_plugin

import tenon
import tenon.torch as tn


def test_they_are_there(plugin: pathlib.Path) -> None:
    assert "cube" in tenon.ops() and "cube" in tn.ops()
    assert torch.equal(tn.cube(here.tensor([2.0])), here.tensor([8.0]))
    assert torch.equal(torch.ops.tenon.cube(here.tensor([2.0])), here.tensor([8.0]))
    before = tn.ops()
    tenon.load(plugin)  # again: nothing happens
    tn.load(plugin)
    assert tn.ops() == before


def test_numbers_for_0_dim_inputs(plugin: pathlib.Path) -> None:
    x = here.randn(3, 4)
    assert_close(tn.scaled(x, 2), 2 * x)
    assert_close(tn.scaled(x, 0.5), 0.5 * x)
    assert_close(tn.scaled(x, here.tensor(0.5)), 0.5 * x)
    assert_close(tn.scaled(x.half(), 0.5), 0.5 * x, "f16")  # acc(f16) is f32
    with pytest.raises(TypeError, match="alpha has type f64, needs f32"):
        tn.scaled(x, here.tensor(0.5, dtype=torch.float64))


def test_lists(plugin: pathlib.Path) -> None:
    parts = [here.randn(n, 3) for n in (1, 4, 0, 2)]
    assert torch.equal(tn.joined(parts), torch.cat(parts))
    assert torch.equal(tn.joined(tuple(parts)), torch.cat(parts))
    assert torch.equal(torch.ops.tenon.joined(parts), torch.cat(parts))
    many = [here.full((2,), i) for i in range(50)]
    assert torch.equal(tn.joined(many), torch.cat(many))
    turned = [here.randn(3, 2).t(), here.randn(3, 5).t()]
    assert torch.equal(tn.joined(turned), torch.cat(turned))


def test_lists_updated_in_place(plugin: pathlib.Path) -> None:
    ps, gs = [here.ones(3), here.ones(2, 2)], [here.ones(3), here.full((2, 2), 2.0)]
    for call in (tn.step_list, torch.ops.tenon.step_list):
        versions = [p._version for p in ps]
        assert call(ps, gs, 0.25).item() == 2
        assert all(p._version > v for p, v in zip(ps, versions, strict=True))
    assert torch.equal(ps[0], here.full((3,), 0.5)) and torch.equal(ps[1], here.zeros(2, 2))


def test_types_as_attributes(plugin: pathlib.Path) -> None:
    x = here.randn(2, 9)
    want = x.unfold(1, 3, 2).sum(-1)
    assert tn.pooled(x, 3).dtype == torch.float64
    assert_close(tn.pooled(x, 3, [2], torch.float32), want)
    assert tn.pooled(x, 3, out=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="pooled: needs size <= h"):
        tn.pooled(x, 10)


def test_required_behind_optional(plugin: pathlib.Path) -> None:
    x = here.randn(3, 4)
    assert_close(tn.grouped(x, None, 2), x)
    assert_close(tn.grouped(x, groups=2, b=here.ones(4), add=0.5, sign="minus"), 1.5 - x)
    with pytest.raises(TypeError, match="grouped\\(\\) missing 1 required argument: 'groups'"):
        tn.grouped(x)
    assert "groups: int = <required>" in str(inspect.signature(tn.grouped))


def test_outputs_on_request(plugin: pathlib.Path) -> None:
    x = here.randn(3, 4)
    assert isinstance(tn.grouped(x, groups=2), torch.Tensor)
    _, sums = tn.grouped(x, groups=2, want_sums=True)
    assert_close(sums, x.view(3, 2, 2).sum(-1))
    assert torch.ops.tenon.grouped(x, None, 2)[1] is None


def test_python_keywords_as_names(plugin: pathlib.Path) -> None:
    assert tn.nothing(here.randn(2, 1, 3), lambda_=2).shape == (2, 1, 6)


def test_broadcast_and_order(plugin: pathlib.Path) -> None:
    a, b = here.randn(4, 1, 3), here.randn(2, 1)
    assert_close(tn.outer(a, b), a + b)
    assert_close(tn.ordered(a, [2, -3, 1]), a.permute(2, 0, 1))


def test_shown_outputs_follow_from_the_rule(plugin: pathlib.Path) -> None:
    from tenon._public import shown_outputs

    ops = tenon.ops()
    assert shown_outputs(ops["layer_norm"]) == [0]  # statistics are for the backward pass
    assert shown_outputs(ops["cross_entropy"]) == [0]
    assert shown_outputs(ops["halves"]) == [0, 1]  # both are differentiable
    assert shown_outputs(ops["layer_norm_grad"]) == [0, 1, 2]  # no rule: all


ROW = """
#include <tenon/op.h>
static tn_status run(const tn_call *call, void *state) {{
    (void)call, (void)state;
    return TN_OK;
}}
static const tn_kernel kernels[] = {{{{.name = "ref", .device = TN_CPU, .run = run}}, {{0}}}};
static const tn_op row = {{.signature = "{signature}", .doc = "A test.", .grad = {grad}, .kernels = kernels}};
static const tn_op *const rows[] = {{&row}};
const tn_plugin tenon_plugin = TN_PLUGIN(rows);
"""
LOADS = """
import sys
import torch
import tenon.torch as tn
for path in sys.argv[1:]:
    try:
        tn.load(path)
        print("loaded", *[name for name in tn.ops() if name.startswith("t_")])
    except Exception as error:
        print(str(error).splitlines()[0])
try:
    tn.t_lists([torch.ones(2)])
except NotImplementedError as error:
    print(error)
"""


def test_bad_rows_are_told_of_once(tmp_path: pathlib.Path) -> None:
    """And are in nobody's way: neither of other plugins nor of what the module has."""
    made = []
    for name, signature, grad in (
        ("rule", "t_rule(x: T[*s]) -> y: T[*s]", '"x: t_nowhere(dy)"'),
        ("lists", "t_lists(xs: [T[*s]]) -> ys: [T[*s]]", "NULL"),
        ("load", "load(x: T[*s]) -> y: T[*s]", "NULL"),
        ("good", "t_good(x: T[*s]) -> y: T[*s]", "NULL"),
    ):
        source = tmp_path / f"{name}.c"
        source.write_text(ROW.format(signature=signature, grad=grad))
        made.append(compile_plugin(tmp_path, source, name))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOADS, *map(str, made)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.splitlines()
    assert "t_nowhere" in said[0]
    assert said[1] == "loaded t_lists"
    assert "load: tenon.torch has something else of this name" in said[2]
    assert said[3] == "loaded t_lists t_good"
    assert "t_lists: output 'ys' is a list" in said[4]


CPP = """
#include <tenon/op.h>
static tn_status run(const tn_call *, void *) { return TN_OK; }
static const tn_kernel kernels[] = {
    {"ref", TN_CPU, 0, 0, 0, nullptr, nullptr, nullptr, nullptr, run, nullptr}, {}};
static const tn_op row = {
    "t_cpp(x: T[*s]) -> y: T[*s]", "A test.", nullptr, nullptr, nullptr, kernels, nullptr, nullptr};
static const tn_op *const rows[] = {&row};
const tn_plugin tenon_plugin = TN_PLUGIN(rows);
"""


def test_written_in_cpp(tmp_path: pathlib.Path) -> None:
    """A const of C++ is its file's own unless something says otherwise; the header does."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    source = tmp_path / "cpp.cpp"
    source.write_text(CPP)
    made = compile_plugin(tmp_path, source, "cpp")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    loads = f"import tenon; tenon.load({str(made)!r}); print('t_cpp' in tenon.ops())"
    said = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True, env=env).stdout
    assert said == "True\n"


HOST = """
import faulthandler, sys, threading
import torch
import tenon, tenon.torch as tn
faulthandler.enable()
threading.Thread(target=threading.Event().wait, daemon=True).start()
torch.ones(64, 64) @ torch.ones(64, 64)  # its threads run, too
for path, sha256 in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        tenon.load(path, sha256=sha256 or None)
        print("loaded")
    except Exception as error:
        print(error)
print(tn.t_good(torch.ones(2)).shape, *[name for name in tn.ops() if name.startswith("t_")])
"""
CRASH = "static __attribute__((constructor)) void begin(void) { *(volatile int *)8 = 1; }\n"


def test_the_host_lives(tmp_path: pathlib.Path) -> None:
    """Files that crash, lack a symbol, have changed or clash: a message each, in a process with threads."""
    row = ROW.format(signature="t_good(x: T[*s]) -> y: T[*s]", grad="NULL")
    texts = {
        "crash": row + CRASH,
        "symbol": row.replace("return TN_OK", "extern tn_status t_nowhere(void); return t_nowhere()"),
        "good": row,
        "twin": row + "int other;\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.c").write_text(text)
    made = {name: compile_plugin(tmp_path, tmp_path / f"{name}.c", name) for name in texts}
    digest = hashlib.sha256(made["good"].read_bytes()).hexdigest()
    asked = [(made["crash"], ""), (made["symbol"], ""), (made["good"], "ab" * 32), (made["good"], digest)]
    asked.append((made["twin"], ""))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TENON_CACHE_DIR": str(tmp_path)}
    env["TENON_PLUGINS"] = f"{made['crash']}:{tmp_path}/none.so"
    command = [sys.executable, "-c", HOST, *(str(part) for pair in asked for part in pair)]
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    said = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stderr
    assert "crash" in said[0] and "opening it crashed a trial process (Segmentation fault)" in said[0]
    assert "undefined symbol: t_nowhere" in said[1]
    assert f"its SHA-256 is {digest}, not {'ab' * 32}" in said[2]
    assert said[3] == "loaded"
    assert f"its operator 't_good' is refused: {made['good']} already has an operator of this name" in said[4]
    assert said[5] == "torch.Size([2]) t_good"
    assert ran.stderr.count("tenon: TENON_PLUGINS: ") == 2 and "Fatal Python error" not in ran.stderr


def test_plugins_by_name(tmp_path: pathlib.Path) -> None:
    """TENON_PLUGINS: there in the first line that uses the table."""
    source = tmp_path / "good.c"
    source.write_text(ROW.format(signature="t_named(x: T[*s]) -> y: T[*s]", grad="NULL"))
    made = compile_plugin(tmp_path, source, "good")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TENON_PLUGINS": str(made)}
    uses = "import torch, tenon.torch as tn; print(tn.t_named(torch.ones(3)).shape)"
    ran = subprocess.run([sys.executable, "-c", uses], capture_output=True, text=True, env=env)
    assert (ran.returncode, ran.stdout) == (0, "torch.Size([3])\n"), ran.stderr
