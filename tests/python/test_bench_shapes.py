"""bench/shapes.py: the cells that it draws, the bytes that they move, their calls, and the report."""

from __future__ import annotations

import importlib
import json
import math
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import here
import pytest
import torch

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.fixture
def cells(bench: Callable[[str], Any]) -> Any:
    return bench("cells")


@pytest.fixture
def shapes(bench: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(bench("gpu"), "DEVICE", here.DEVICE)
    return bench("shapes")


# ---- drawing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_is_drawn(cells: Any, device: str) -> None:
    """Every operator, layout and type; tensors within the limits; sizes of models and odd ones."""
    made = list(islice(cells.drawn(7, device), 2000))
    limits = cells.LIMITS[device]
    assert {cell.op for cell in made} == set(cells.operators_for(device))
    assert {cell.layout for cell in made} == set(cells.LAYOUTS)
    assert {cell.dtype for cell in made} == {"bf16", "f32", "f16"}
    for cell in made:
        size = math.prod(cell.shape) * cells.TYPES[cell.dtype].itemsize
        assert limits.least / 2 <= size <= limits.most, cell  # blocks may round rows down
        if cell.operator.form.startswith("images"):
            assert cell.shape[0] >= 2, cell  # PyTorch wants more than one value of a channel
    columns = Counter(cell.shape[-1] for cell in made if cell.operator.form == "rows")
    known = sum(n for c, n in columns.items() if c in cells.COLUMNS)
    odd = sum(n for c, n in columns.items() if c >= 512 and c % 2)
    assert known > 0.3 * columns.total() and odd > 0.15 * columns.total()
    assert any(c < 18 for c in columns)
    rows = [cell.shape[0] for cell in made if cell.operator.form == "rows"]
    assert min(rows) == 1 and max(rows) > limits.rows // 2


def test_a_seed_repeats(cells: Any) -> None:
    first, again, other = (list(islice(cells.drawn(seed, "cuda"), 50)) for seed in (1, 1, 2))
    assert first == again != other
    some = list(islice(cells.drawn(1, "cuda", ["sum", "softmax/formula"], 0.5), 200))
    assert {cell.op for cell in some} == {
        *(f"sum/{n}" for n in ("last", "first", "middle", "all")),
        "softmax/formula",
    } | {
        "sum/last/formula",
        "sum/all/formula",
    }
    assert 60 < sum(cell.compile for cell in some) < 140
    with pytest.raises(ValueError, match="no operator 'softmin'"):
        cells.operators_for("cuda", ["softmin"])


def test_grid(cells: Any) -> None:
    """Every size in both types and passes, and what a call moves is near what it is meant to."""
    grid = cells.grid(["rms_norm", "batch_norm/NHWC"])
    norms = [cell for cell in grid if cell.op == "rms_norm"]
    assert {cell.shape[1] for cell in norms} >= set(cells.COLUMNS)
    assert {(cell.dtype, cell.backward) for cell in norms} == {(t, b) for t in ("bf16", "f32") for b in (False, True)}
    assert len(set(grid)) == len(grid)
    for cell in grid[:300]:
        rows = cell.shape[0]
        if 8 < rows < cells.LIMITS["cuda"].rows:
            assert min(abs(math.log(cell.nbytes / amount)) for amount in cells.GRID_BYTES) < 0.1, cell


# ---- what a cell is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "backward", "shape", "dtype", "nbytes"),
    [
        ("softmax", False, (10, 100), "bf16", 2 * 2000),
        ("softmax", True, (10, 100), "bf16", 5 * 2000),  # x, y; y, dy, dx
        ("rms_norm", False, (10, 100), "f32", 2 * 4000 + 400),
        ("rms_norm/formula", True, (10, 100), "f32", 5 * 4000 + 3 * 400),  # gamma twice and dgamma
        ("layer_norm", True, (10, 100), "bf16", 5 * 2000 + 6 * 200),
        ("cross_entropy", False, (10, 100), "bf16", 2000 + 80 + 2),
        ("cross_entropy", True, (10, 100), "bf16", 2 * 2000 + 80 + 4),
        ("sum/last", False, (10, 100), "f32", 4000 + 40),
        ("sum/first", False, (10, 100), "f32", 4000 + 400),
        ("sum/middle", False, (2, 5, 100), "f32", 4000 + 800),
        ("sum/all", False, (10, 100), "f32", 4000 + 4),
        ("batch_norm/NCHW", False, (2, 3, 4, 4), "f32", 3 * 384 + 4 * 12),
        ("batch_norm/NHWC", True, (2, 3, 4, 4), "f32", 8 * 384 + 8 * 12),
    ],
)
def test_bytes(cells: Any, op: str, backward: bool, shape: tuple[int, ...], dtype: str, nbytes: int) -> None:
    assert cells.Cell(op, backward, shape, dtype).nbytes == nbytes


def test_aligned(cells: Any) -> None:
    aligned = [
        cells.Cell("softmax", False, (3, 8), "bf16"),
        cells.Cell("softmax", False, (3, 8), "bf16", "padded"),
        cells.Cell("sum/all", False, (3, 7), "bf16"),
        cells.Cell("batch_norm/NHWC", False, (2, 8, 7, 7), "bf16"),
    ]
    odd = [
        cells.Cell("softmax", False, (3, 8), "bf16", "offset"),
        cells.Cell("softmax", False, (3, 9), "bf16"),
        cells.Cell("sum/all", False, (3, 7), "bf16", "padded"),
        cells.Cell("batch_norm/NCHW", False, (2, 8, 7, 7), "bf16"),
    ]
    assert [cell.aligned for cell in aligned + odd] == 4 * [True] + 4 * [False]


SMALL = {
    "rows": (6, 40),
    "rows of pairs": (6, 40),
    "rows of many": (6, 100),
    "blocks": (3, 4, 10),
    "images": (3, 4, 5, 5),
    "images, channels last": (3, 4, 5, 5),
    "images of groups": (3, 8, 5, 5),
}


def test_sides_agree(cells: Any) -> None:
    """Every side of every operator, layout and pass computes the same."""
    seen = set()
    for name in dict.fromkeys(cells.operators_for("cuda") + cells.operators_for("cpu")):
        operator = cells.OPERATORS[name]
        for layout in cells.LAYOUTS if operator.form.startswith("rows") else ("dense",):
            for backward in (False, True) if operator.again is not None else (False,):
                cell = cells.Cell(name, backward, SMALL[operator.form], "f32", layout)
                with torch.set_grad_enabled(backward):
                    calls = cells.sides_of_set(cell, here.DEVICE, ["eager"], None)
                    made = {side: call() for side, call in calls.items()}
                seen |= set(made)
                if not backward:
                    first = made["eager"][0] if isinstance(made["eager"], tuple) else made["eager"]
                    assert first.shape == operator.result(cell.shape), cell
                for side, results in made.items():
                    torch.testing.assert_close(
                        results,
                        made["eager"],
                        rtol=1e-4,
                        atol=1e-4,
                        msg=lambda m, s=side, n=cell.name: f"{n}: {s}: {m}",
                    )
    assert seen == {"tenon", "operator", "eager"}


def test_layouts(cells: Any) -> None:
    x = torch.randn(4, 6)
    offset = cells.laid_out(x, cells.Cell("softmax", False, (4, 6), "f32", "offset"))
    padded = cells.laid_out(x, cells.Cell("softmax", False, (4, 6), "f32", "padded"))
    assert offset.storage_offset() == 1 and padded.stride() == (14, 1)
    assert torch.equal(offset, x) and torch.equal(padded, x)


def test_tensors_take_turns(cells: Any, shapes: Any) -> None:
    """Small calls run on several sets, and keep the results of all of them; a large one runs on one set."""
    assert [shapes.set_count(n) for n in (1 << 10, 8 << 20, 100 << 20, 1 << 30)] == [32, 16, 2, 1]
    cell = cells.Cell("softmax", False, (4, 8), "f32")
    rotation = cells.sides_of(cell, here.DEVICE, [], sets=3)["tenon"]
    for _ in range(4):
        rotation()
    assert len({t.data_ptr() for t in rotation.kept}) == 3
    assert not torch.equal(rotation.kept[0], rotation.kept[1])


def test_copies(shapes: Any) -> None:
    """Both move at least as many bytes, and really copy."""
    for name, rotation in shapes.copies(5000, 2).items():
        call = rotation.calls[0]
        source, target = call.__defaults__[1], call.__defaults__[0]
        assert 5000 <= source.nbytes + target.nbytes < 5000 + 1024
        rotation()
        assert torch.equal(target, source if name == "copy engine" else ~source)


# ---- measuring -------------------------------------------------------------------------------------------------------


def test_measured_on_the_cpu(cells: Any, shapes: Any) -> None:
    row = shapes.measured(cells.Cell("rms_norm/formula", True, (4, 17), "bf16"), "cpu", ["eager"], threads=1)
    assert row["shape"] == [4, 17] and row["threads"] == 1 and row["peer"] == "eager"
    assert row["tenon_us"] > 0 and row["of_peer"] == pytest.approx(row["eager_us"] / row["tenon_us"], abs=0.02)
    assert row["of_operator"] > 0
    json.dumps(row)


@pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("backward", [False, True])
def test_measured_on_the_gpu(cells: Any, shapes: Any, backward: bool) -> None:
    for op in cells.operators_for("cuda"):
        operator = cells.OPERATORS[op]
        if backward and operator.again is None:
            continue
        row = shapes.measured(cells.Cell(op, backward, SMALL[operator.form], "bf16"), "cuda", ["eager"])
        assert "tenon_us" in row and "copy_us" in row and row["peer"] == "eager", row
        assert not [key for key in row if key.endswith(("_error", "_queued"))], row


def test_what_fails_is_said(cells: Any, shapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A side without memory is left out, one that cannot be captured is queued, and the others go on."""
    tried = []

    def replays(call: str, in_graph: bool, multiple: int) -> tuple[Any, int]:
        tried.append((call, in_graph))
        if call == "large":
            raise torch.OutOfMemoryError("no room\nat all")
        if call == "waits" and in_graph:
            raise RuntimeError("operation not permitted when stream is capturing")
        return print, multiple

    monkeypatch.setattr(shapes.gpu, "replays", replays)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    row: dict[str, Any] = {}
    cell = cells.Cell("softmax", False, (4, 8), "f32")
    made = {
        name: shapes.replays_or_reason(name, call, shapes.in_graph(cell, name, 1 << 30), 4, row)
        for name, call in {"tenon": "fine", "eager": "large", "liger": "waits", "copy engine": "streams"}.items()
    }
    assert [name for name, found in made.items() if found is None] == ["eager"]
    assert row == {
        "eager_error": "OutOfMemoryError: no room",
        "liger_queued": "RuntimeError: operation not permitted when stream is capturing",
    }
    known: dict[str, Any] = {}
    shapes.replays_or_reason("liger", "fine", False, 4, known)
    assert known == {"liger_queued": "waits for the device"} and tried.pop() == ("fine", False)
    assert not shapes.in_graph(cells.Cell("cross_entropy", False, (4, 8), "f32"), "liger", 8)
    assert tried == [("fine", True), ("large", True), ("waits", True), ("waits", False), ("streams", False)]


def test_a_cell_that_fails_does_not_end_the_run(shapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = shapes.parse(["--device", "cpu", "--cells", "3", "--seed", "1", "--threads", "1"])
    real, count = shapes.on_cpu, iter(range(3))

    def once(cell: Any, peers: list[str], row: dict[str, Any]) -> Any:
        if next(count) == 1:
            raise RuntimeError("this shape is refused")
        small = type(cell)("softmax", False, (3, 5), "f32")
        return real(small, peers, row)

    monkeypatch.setattr(shapes, "on_cpu", once)
    rows = shapes.measure_all(shapes.chosen(given), given)
    assert ["error" in row for row in rows] == [False, True, False]
    assert shapes.summary(rows)["failed"] == 1
    given.seconds = -1.0
    assert shapes.measure_all(shapes.chosen(given), given) == []


# ---- the line and the report -----------------------------------------------------------------------------------------


def row(nbytes: float, aligned: bool = True, backward: bool = False, op: str = "softmax") -> dict[str, Any]:
    shape = {"op": op, "shape": [4, int(nbytes) // 8], "type": "bf16", "layout": "dense"}
    return {**shape, "pass": "fwd+bwd" if backward else "forward", "aligned": aligned, "bytes": int(nbytes)}


@pytest.mark.parametrize(
    ("given", "us", "misses"),
    [
        (row(100e6), {"tenon": 100, "copy engine": 91, "copy kernel": 95}, ["copy"]),
        (row(100e6), {"tenon": 100, "copy engine": 95, "copy kernel": 92.5}, []),
        (row(100e6, backward=True), {"tenon": 100, "copy engine": 88.5}, []),
        (row(100e6, backward=True), {"tenon": 100, "copy engine": 87.5}, ["copy"]),
        (row(100e6, aligned=False), {"tenon": 100, "copy engine": 80.5}, []),
        (row(100e6, aligned=False), {"tenon": 100, "copy engine": 79}, ["copy"]),
        (row(10e6), {"tenon": 10, "copy engine": 5, "eager": 9.1}, []),  # 9.1 * 1.05 + 0.5
        (row(10e6), {"tenon": 10, "copy engine": 5, "eager": 12, "liger": 9.0}, ["peer"]),
        (row(10e6), {"tenon": 10, "operator": 9.0}, ["operator"]),
        (row(10e6), {"eager": 10}, ["failed"]),
        ({**row(10e6), "threads": 1}, {"tenon": 10, "eager": 9.4}, ["peer"]),
        ({**row(10e6), "threads": 1}, {"tenon": 10, "eager": 9.6}, []),
    ],
)
def test_the_line(shapes: Any, given: dict[str, Any], us: dict[str, float], misses: list[str]) -> None:
    found = {**given, **shapes.rated(given, us)}
    assert found["misses"] == misses
    assert (shapes.badness(found) > 1) == bool(misses)


def test_report(shapes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {**given, **shapes.rated(given, us)}
        for given, us in (
            (row(100e6), {"tenon": 100, "copy engine": 95, "eager": 200, "liger": 120}),
            (row(200e6), {"tenon": 100, "copy kernel": 40, "eager": 200}),
            (row(300e6, op="softmax/formula"), {"tenon": 100, "copy engine": 95, "operator": 70}),
            (row(400e6), {"eager": 10}),
        )
    ]
    shapes.report(rows, 4, "cuda")
    said = capsys.readouterr().out
    at = [said.index(f" 4x{int(n)}") for n in (400e6 // 8, 200e6 // 8, 300e6 // 8, 100e6 // 8)]
    assert at == sorted(at)
    assert "misses: copy" in said and "misses: operator" in said and "liger" in said
    assert "4 cells, 1 failed, 25.0% meet the line" in said
    assert "share of the copy's speed, more than 64 MB moved: worst 0.40, median 0.95 of 3 cells" in said
    assert "66.7% of the cells over 64 MB reach their share" in said
    operators = shapes.by_operator(rows)
    assert operators["softmax forward"]["of_peer"] == {"cells": 2, "worst": 1.2, "median": 1.6}
    assert operators["softmax/formula forward"]["of_operator"]["worst"] == 0.7


def test_parts_of_the_grid(shapes: Any) -> None:
    """Together they are the whole."""
    options = ["--grid", "--ops", "batch_norm", "--compile-share", "0"]
    whole = shapes.chosen(shapes.parse(options))
    parts = [shapes.chosen(shapes.parse([*options, "--part", f"{k}/3"])) for k in (1, 2, 3)]
    assert sorted(cell.name for part in parts for cell in part) == sorted(cell.name for cell in whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_join(shapes: Any, bench: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts become one result, of which the page is made; goals, parts and older seeds are not on it."""
    run, pages = bench("run"), bench("report")
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    monkeypatch.setattr(run, "RESULTS", results)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    given, us = row(100e6), {"tenon": 100.0, "copy engine": 95.0, "eager": 200.0}
    rows = [{**given, **shapes.rated(given, us)}]
    whole = {**run.environment(), "gpu": "a GPU", "seed": None, "cells_chosen": 1, "peers": ["eager", "liger"]}
    found = {"summary": shapes.summary(rows), "operators": shapes.by_operator(rows), "rows": rows}
    for name in ("grid-1of2", "grid-2of2", "goals"):
        run.write_result(f"shapes-cuda-{name}", {**whole, **found})
    for seed, day in ((1, "2026-01-01"), (2, "2026-01-02"), (3, "2026-01-02")):
        run.write_result(f"shapes-cuda-seed{seed}", {**whole, "seed": seed, "date": day, **found})
    assert shapes.join(sorted(results.glob("*grid*")), 5) == 0
    shown = pages.newest()
    assert [path.name.split("-")[2] for path in shown] == ["grid", "seed2", "seed3"]
    text = pages.section(shown[0])
    assert "2 calls of the grid, on a GPU" in text and "PyTorch eager and Liger in each, Tenon is 2.00" in text
    assert "| softmax | forward | 2 | 0.95 | 0.95 | 2.00 | 2.00 | 100% |" in text
    assert "drawn with seed 2" in pages.section(shown[1])


def test_options(shapes: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, message in (
        (["--part", "4/3"], "write K/N"),
        (["--ops", "softmin"], "no operator 'softmin'"),
        (["--peers", "cudnn"], "no peer 'cudnn'"),
        (["--types", "f8"], "no type 'f8'"),
    ):
        with pytest.raises(SystemExit):
            shapes.parse(wrong)
        assert message in capsys.readouterr().err
    given = shapes.parse(["--shape", "4096x3001,2x3x8x8", "--ops", "rms_norm,batch_norm/NHWC", "--types", "bf16"])
    assert [cell.name for cell in shapes.chosen(given)] == [
        "rms_norm forward bf16 4096x3001",
        "rms_norm fwd+bwd bf16 4096x3001",
        "rms_norm/formula forward bf16 4096x3001",
        "rms_norm/formula fwd+bwd bf16 4096x3001",
        "batch_norm/NHWC forward bf16 2x3x8x8",
        "batch_norm/NHWC fwd+bwd bf16 2x3x8x8",
    ]
    only = shapes.parse(["--only", r"fwd\+bwd bf16", "--cells", "20", "--seed", "4"])
    assert len(shapes.chosen(only)) == 20 and all("fwd+bwd bf16" in cell.name for cell in shapes.chosen(only))
    assert [cell.op for cell in shapes.chosen(shapes.parse(["--goals"]))] == [op for op, _ in shapes.GOALS]
