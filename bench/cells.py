"""The cells of bench/shapes.py: which operators there are, shapes drawn as models have them, and the calls of a cell.

A cell is one call that is measured: an operator, forward or with its gradient, a shape, a type, and how the tensor lies
in memory. The PyTorch code is that of bench/peers.py.
"""

from __future__ import annotations

import importlib
import math
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import tenon.torch as tn
from formulas import RMS_NORM, SOFTMAX
from operators import Side, compiled, gradient_like, step
from peers import LISTED, SEGMENTS, Given, Peer, kinds, leaves, make
from peers import OPERATORS as PEERS
from run import TYPES

Call = Callable[[], Any]
Shape = tuple[int, ...]


# ---- operators -------------------------------------------------------------------------------------------------------


def ligers(function: str, *more: Any) -> Callable[..., Any]:
    def call(*given: Tensor) -> Any:
        made = getattr(liger(), function).apply(*given, *more)
        return made[0] if isinstance(made, tuple) else made

    return call


@cache
def liger() -> Any:
    """Liger's functions, from LIGER_PATH (the folder of its unzipped wheel) or where Python finds it."""
    if "LIGER_PATH" in os.environ:
        sys.path.insert(0, os.environ["LIGER_PATH"])
    return importlib.import_module("liger_kernel.ops")


@dataclass(frozen=True)
class Operator:
    """What is measured, and how many bytes it must move beside each input and output once."""

    op: str  # in Tenon's table
    peer: Peer
    # rows: (rows, columns); blocks: (blocks, rows, columns); images: (batch, channels, y, x). FITS has the rest.
    form: str = "rows"
    reads: int = 1  # times that the forward pass must read x, the first input
    writes: int = 1  # results as large as the first
    indices: int = 0  # results of i64
    by_memory: bool = True  # a copy of as many bytes says how fast it can be
    sums: Sequence[int] | None = None  # axes that the result does not have; None: it is as large as x
    keeps: int = 0  # columns of the result; 0: all
    becomes: Callable[[Shape], Shape] | None = None  # the shape of the result, where that is another one
    again: int | None = 1  # tensors as large as x that the gradient reads beside dy once; None: it is not measured
    formula: str = ""  # the same as a formula of the first inputs
    takes: int = 1
    liger: Callable[..., Any] | None = None
    liger_waits: bool = False  # for the device, which no graph can hold
    devices: Sequence[str] = ("cuda", "cpu")

    @property
    def first(self) -> str:
        """The input that has the shape of the cell."""
        return next(iter(kinds(self.peer.inputs)))

    def result(self, shape: Shape) -> Shape:
        if self.becomes:
            return self.becomes(shape)
        if self.keeps:
            return (*shape[:-1], self.keeps)
        return shape if self.sums is None else tuple(n for axis, n in enumerate(shape) if axis not in self.sums)


def sum_over(*axes: int, form: str = "rows", formula: str = "") -> Operator:
    """PyTorch's gradient of a sum is a view, and moves nothing: there is nothing to measure."""
    peer = replace(PEERS["sum"], usual=lambda x: torch.sum(x, axes), attrs={"axes": list(axes)})
    return Operator("sum", peer, form, sums=axes, again=None, formula=formula)


def reduced(
    op: str, function: Callable[..., Tensor], *axes: int, form: str = "rows", again: int | None = 1
) -> Operator:
    """A reduction over some axes; `function` is given x and the axes."""
    peer = replace(PEERS[op], usual=lambda x: function(x, axes), attrs={"axes": list(axes)})
    return Operator(op, peer, form, sums=axes, again=again)


def along_first(op: str, function: Callable[..., Any], indices: int = 0) -> Operator:
    """What goes along the last axis by default, along the first one."""
    peer = replace(PEERS[op], usual=function, attrs={"axis": 0})
    return Operator(op, peer, indices=indices, again=None if indices else 1)


def positions(op: str, function: Callable[..., Tensor], axis: int) -> Operator:
    peer = replace(PEERS[op], usual=lambda x: function(x, axis), attrs={"axes": [axis]})
    return Operator(op, peer, sums=(axis,), writes=0, indices=1, again=None)


def joined(shape: Shape) -> Shape:
    return LISTED * max(1, shape[0] // LISTED), shape[1]


def in_segments(shape: Shape) -> Shape:
    return SEGMENTS, shape[1]


def on_cpu(op: str, operator: Operator | None = None) -> Operator:
    return replace(operator or Operator(op, PEERS[op]), devices=("cpu",))


def l2_normalize(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


LAYER_NORM = "norm(x, g, b) : y = (x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * g + b"
BATCH_NORM = """norm(x: T[n, c, *s], g: W[c], b: W[c]) -> y: T[n, c, *s] :
    k = count(x) / count(g)
    d = x - sum_to(x, g) / k
    y = d * rsqrt(sum_to(d * d, g) / k + 1e-5) * g + b"""

SOFTMAXES = Operator("softmax", PEERS["softmax"], liger=ligers("LigerSoftmaxFunction"))
# 0.0, "llama", False: gamma as it is, only 1 / rms in f32, and dy is not overwritten with dx.
RMS_NORMS = Operator(
    "rms_norm", PEERS["rms_norm"], takes=2, liger=ligers("LigerRMSNormFunction", 1e-6, 0.0, "llama", False)
)
LAYER_NORMS = Operator("layer_norm", PEERS["layer_norm"], takes=3, liger=ligers("LigerLayerNormFunction", 1e-5))
# Statistics come before what needs them, so that x is read twice, and for the gradient x and dy.
BATCH_NORMS = Operator("batch_norm", PEERS["batch_norm"], "images", reads=2, again=3, takes=3)
OPERATORS: dict[str, Operator] = {
    "softmax": SOFTMAXES,
    "softmax/formula": replace(SOFTMAXES, formula=SOFTMAX),
    "rms_norm": RMS_NORMS,
    "rms_norm/formula": replace(RMS_NORMS, formula=RMS_NORM),
    "layer_norm": LAYER_NORMS,
    "layer_norm/formula": replace(LAYER_NORMS, formula=LAYER_NORM),
    # The gradient is written in the pass that computes the loss. Liger asks the device how many targets count.
    "cross_entropy": Operator(
        "cross_entropy",
        PEERS["cross_entropy"],
        sums=(0, 1),
        again=0,
        liger=ligers("LigerCrossEntropyFunction", None),
        liger_waits=True,
    ),
    "sum/last": sum_over(1),
    "sum/last/formula": sum_over(1, formula="sum(x, -1)"),
    "sum/first": sum_over(0),
    "sum/middle": sum_over(1, form="blocks"),
    "sum/all": sum_over(0, 1),
    "sum/all/formula": sum_over(0, 1, formula="sum(x)"),
    "batch_norm/NCHW": BATCH_NORMS,
    "batch_norm/NHWC": replace(BATCH_NORMS, form="images, channels last"),
    "batch_norm/NCHW/formula": replace(BATCH_NORMS, formula=BATCH_NORM),
    "log_softmax": Operator("log_softmax", PEERS["log_softmax"]),
    "logsumexp": reduced("logsumexp", torch.logsumexp, 1),
    "add_layer_norm": Operator("add_layer_norm", PEERS["add_layer_norm"], writes=2, again=None),
    "add_rms_norm": Operator("add_rms_norm", PEERS["add_rms_norm"], writes=2, again=None),
    "group_norm": Operator("group_norm", PEERS["group_norm"], "images of groups"),
    "instance_norm": Operator("instance_norm", PEERS["instance_norm"], "images of groups"),
    "mean/last": reduced("mean", torch.mean, 1, again=None),  # its gradient is a view, too
    "mean/first": reduced("mean", torch.mean, 0, again=None),
    "mean/middle": reduced("mean", torch.mean, 1, form="blocks", again=None),
    "max/last": reduced("max", torch.amax, 1),
    "max/first": reduced("max", torch.amax, 0),
    "var/last": reduced("var", partial(torch.var, correction=0), 1),
    "var/first": reduced("var", partial(torch.var, correction=0), 0),
    "norm/last": reduced("norm", lambda x, axes: torch.linalg.vector_norm(x, 2, axes), 1),
    "norm/all": reduced("norm", lambda x, axes: torch.linalg.vector_norm(x, 2, axes), 0, 1),
    "prod": reduced("prod", lambda x, axes: torch.prod(x, axes[0]), 1, again=None),
    "rope": Operator("rope", PEERS["rope"], "rows of pairs", again=0),
    "embedding": Operator("embedding", PEERS["embedding"], again=0),
    "index_select": Operator("index_select", PEERS["index_select"], again=0),
    "gather": Operator("gather", PEERS["gather"], again=0),
    "scatter_add": Operator("scatter_add", PEERS["scatter_add"], again=None),
    "sort": Operator("sort", PEERS["sort"], indices=1, again=None, by_memory=False),
    "top_k": Operator("top_k", PEERS["top_k"], "rows of many", keeps=64, indices=1, again=None, by_memory=False),
    # bench/family.py has these for GPUs.
    "min/last": on_cpu("min", reduced("min", torch.amin, 1)),
    "std/last": on_cpu("std", reduced("std", partial(torch.std, correction=0), 1)),
    "argmax/last": on_cpu("argmax", Operator("argmax", PEERS["argmax"], sums=(1,), writes=0, indices=1, again=None)),
    "argmax/first": on_cpu("argmax", positions("argmax", torch.argmax, 0)),
    "cumsum/last": on_cpu("cumsum"),
    "cumsum/first": on_cpu("cumsum", along_first("cumsum", lambda x: torch.cumsum(x, 0))),
    "cumprod": on_cpu("cumprod"),
    "cummax/last": on_cpu("cummax", Operator("cummax", PEERS["cummax"], indices=1, again=None)),
    "cummax/first": on_cpu("cummax", along_first("cummax", lambda x: tuple(torch.cummax(x, 0)), indices=1)),
    "permute": on_cpu("permute", Operator("permute", PEERS["permute"], becomes=lambda shape: shape[::-1], again=None)),
    "concat": on_cpu("concat", Operator("concat", PEERS["concat"], becomes=joined, again=None)),
    "pad": on_cpu("pad", Operator("pad", PEERS["pad"], becomes=lambda shape: (shape[0], shape[1] + 16), again=None)),
    "roll": on_cpu("roll"),
    "repeat": on_cpu(
        "repeat", Operator("repeat", PEERS["repeat"], becomes=lambda shape: (shape[0], 2 * shape[1]), again=None)
    ),
    "triu": on_cpu("triu"),
    "select": on_cpu("select", Operator("select", PEERS["select"], "rows", again=None)),
    "segment_sum": on_cpu(
        "segment_sum", Operator("segment_sum", PEERS["segment_sum"], becomes=in_segments, again=None)
    ),
    "soft_cross_entropy": on_cpu(
        "soft_cross_entropy", Operator("soft_cross_entropy", PEERS["soft_cross_entropy"], sums=(0, 1), again=None)
    ),
    "batch_norm_infer": on_cpu(
        "batch_norm_infer", Operator("batch_norm_infer", PEERS["batch_norm_infer"], "images", again=None)
    ),
    "gelu": on_cpu("gelu"),
    "silu": on_cpu("silu"),
    "swiglu": on_cpu("swiglu", Operator("swiglu", PEERS["swiglu"], again=None)),
    "l2_normalize/formula": Operator(
        "", Peer(l2_normalize), formula="x * rsqrt(sum(x * x, -1) + 1e-6)", devices=("cpu",)
    ),
}


# ---- cells -----------------------------------------------------------------------------------------------------------

LAYOUTS = ("dense", "offset", "padded")
OFFSET, PADDING = 1, 8  # elements; a row of a padded tensor is 8 elements apart from the next


@dataclass(frozen=True)
class Cell:
    op: str
    backward: bool
    shape: Shape
    dtype: str
    layout: str = "dense"  # offset: begins one element late; padded: rows with room behind them
    compile: bool = False  # whether torch.compile, which takes seconds for a shape, is measured as well

    @property
    def operator(self) -> Operator:
        return OPERATORS[self.op]

    @property
    def direction(self) -> str:
        return "fwd+bwd" if self.backward else "forward"

    @property
    def name(self) -> str:
        layout = "" if self.layout == "dense" else f" {self.layout}"
        return f"{self.op} {self.direction} {self.dtype} {'x'.join(map(str, self.shape))}{layout}"

    @property
    def aligned(self) -> bool:
        """Whether every row begins at a multiple of 16 bytes, in what is read and what is written."""
        size = TYPES[self.dtype].itemsize
        row = self.shape[-1]
        if self.operator.form == "images, channels last":
            row = self.shape[1]
        elif self.operator.form.startswith("images"):
            row = math.prod(self.shape[2:])
        one_row = "/all" in self.op and self.layout != "padded"
        return self.layout != "offset" and (one_row or row * size % 16 == 0)

    @property
    def nbytes(self) -> int:
        """Bytes that must move: each input is read once and each output written once, or as often as Operator says."""
        operator = self.operator
        given = make(operator.peer.inputs, self.shape, TYPES[self.dtype], "meta")
        first, count = given[operator.first], math.prod(operator.result(self.shape))
        listed = first if isinstance(first, list) else [first]
        x, y = sum(t.nbytes for t in listed), count * listed[0].itemsize
        total = operator.reads * x + operator.writes * y + operator.indices * count * 8
        total += sum(t.nbytes for name, t in given.items() if name != operator.first)
        if self.backward:
            assert operator.again is not None
            of = leaves(operator.peer.inputs, given)
            total += y + operator.again * x + sum(leaf.nbytes for leaf in of)
            total += sum(leaf.nbytes for leaf in of[1:])  # gamma is read again
        return int(total)


def laid_out(x: Any, cell: Cell) -> Any:
    """x as the cell has it in memory; a list of tensors as it is."""
    if cell.operator.form == "images, channels last":
        return x.to(memory_format=torch.channels_last)
    if cell.layout == "dense" or isinstance(x, list):
        return x
    if cell.layout == "offset":
        flat = x.new_empty(x.numel() + OFFSET)
        return flat[OFFSET:].view(x.shape).copy_(x)
    wide = x.new_empty(*x.shape[:-1], x.shape[-1] + PADDING)
    return wide[..., : x.shape[-1]].copy_(x)


# ---- the calls of a cell ---------------------------------------------------------------------------------------------


class Rotation:
    """One call after the other, on tensors of their own. What a call gives is kept until its turn comes again, so that
    results too are in as many places."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls, self.turn = calls, 0
        self.kept: list[Any] = [None] * len(calls)

    def __call__(self) -> None:
        made = self.calls[self.turn]()
        if len(self.calls) > 1:
            self.kept[self.turn] = made
            self.turn = (self.turn + 1) % len(self.calls)


def tenon_sides(cell: Cell, given: Given) -> dict[str, Call]:
    """Tenon's call; for a formula, that of the operator as well."""
    operator = cell.operator
    by_hand = operator.peer.ours(operator.op, given) if operator.op else None
    if not operator.formula:
        assert by_hand is not None
        return {"tenon": by_hand}
    sides: dict[str, Call] = {"tenon": partial(tn.fuse(operator.formula), *list(given.values())[: operator.takes])}
    if by_hand is not None:
        sides["operator"] = by_hand
    return sides


def sides_of_set(cell: Cell, device: str, peers: Sequence[str], traced: Callable[..., Any] | None) -> dict[str, Call]:
    """The calls of every side on tensors of their own."""
    operator, peer = cell.operator, cell.operator.peer
    given = make(peer.inputs, cell.shape, TYPES[cell.dtype], device)
    first = operator.first
    given[first] = laid_out(given[first], cell)
    of = leaves(peer.inputs, given)
    sides = {name: Side(call, of) for name, call in tenon_sides(cell, given).items()}
    theirs = peer.theirs(given)
    if "eager" in peers:
        sides["eager"] = Side(theirs, of)
    if traced is not None:
        sides["compile"] = Side(partial(traced, *theirs.args), of)
    if "liger" in peers and operator.liger is not None:
        own = given
        if cell.backward and operator.op == "cross_entropy":  # it writes the gradient over the logits
            own = {**given, first: laid_out(given[first].clone(), cell)}
        sides["liger"] = Side(partial(operator.liger, *own.values()), leaves(peer.inputs, own))
    if not cell.backward:
        return {name: side.call for name, side in sides.items()}
    for side in sides.values():
        for leaf in side.leaves:
            leaf.requires_grad_()
    x, result = given[first].detach(), operator.result(cell.shape)
    dy = gradient_like(x if result == cell.shape else x.new_empty(result))
    wide = dy.to(torch.float32) if operator.op == "cross_entropy" else dy  # Tenon's losses are f32
    return {name: partial(step, side, wide if name in ("tenon", "operator") else dy) for name, side in sides.items()}


def sides_of(cell: Cell, device: str, peers: Sequence[str], sets: int = 1) -> dict[str, Rotation]:
    """The calls of every side, each on `sets` sets of tensors in turn. A formula has no torch.compile beside it: the
    operator that it computes has."""
    traced = None
    if "compile" in peers and cell.compile and not cell.operator.formula:
        traced = compiled(cell.operator.peer.compiled or cell.operator.peer.written)
    made = [sides_of_set(cell, device, peers, traced) for _ in range(sets)]
    return {name: Rotation([calls[name] for calls in made]) for name in made[0]}


# ---- drawing ---------------------------------------------------------------------------------------------------------

# Hidden sizes and vocabularies of public models.
COLUMNS = (
    *(512, 640, 768, 896, 1024, 1280, 1536, 1600, 1792, 2048, 2304, 2560, 2880, 3072, 3584, 4096, 4544, 4608, 5120),
    *(5376, 6144, 6656, 7168, 8192, 8960, 9216, 10240, 11008, 12288, 13824, 14336, 16384, 18432, 20480, 24576, 27648),
    *(28672, 29568, 32000, 32064, 32768, 49152, 50257, 50272, 50304, 51200, 51865, 64000, 65024, 92416, 100352),
    *(102400, 122753, 126464, 128000, 128256, 129280, 131072, 151643, 151936, 152064, 200064, 201088, 250002, 250880),
    *(256000, 256128, 262144),
)
NEIGHBOURS = (-3, -1, 1, 3, 7)
CHANNELS = (3, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 2048)
SIDES = (1, 4, 7, 8, 12, 14, 16, 20, 28, 32, 40, 56, 64, 80, 112, 128, 160, 224)


@dataclass(frozen=True)
class Limits:
    """Of what is drawn for a device."""

    rows: int
    short_rows: int  # of fewer than 512 columns
    columns: int
    least: int  # bytes of x
    least_backward: int
    most: int
    short: float  # share of cells with fewer than 512 columns


LIMITS = {
    "cuda": Limits(131072, 1 << 22, 1 << 19, 64 << 10, 64 << 10, 4 << 30, 0.1),
    # A gradient of a few KB costs what autograd costs: bench/operators.py --part calls measures that.
    "cpu": Limits(16384, 1 << 18, 1 << 17, 4 << 10, 64 << 10, 16 << 20, 0.3),
}


def log_uniform(r: random.Random, low: float, high: float) -> float:
    return math.exp(r.uniform(math.log(low), math.log(high)))


def clamped(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def draw_count(r: random.Random, low: int, high: int) -> int:
    """Log-uniform; most often an eighth of a power of two that models have, else a neighbour of it."""
    value = log_uniform(r, low, high + 1)
    unit = 2.0 ** (math.floor(math.log2(value)) - 2)
    count = max(1, round(round(value / unit) * unit))
    if r.random() < 0.35:
        count += r.choice(NEIGHBOURS)
    return clamped(count, low, high)


def draw_columns(r: random.Random, limits: Limits) -> int:
    if r.random() < limits.short:
        return int(log_uniform(r, 1, 513)) if r.random() < 0.5 else r.randint(3, 17)
    columns = r.choice([c for c in COLUMNS if c <= limits.columns])
    return columns + r.choice(NEIGHBOURS) if r.random() < 0.4 else columns


def draw_rows(r: random.Random, limits: Limits, size: int, least: int) -> Shape:
    while True:
        columns = draw_columns(r, limits)
        most = limits.short_rows if columns < 512 else limits.rows
        low, high = math.ceil(least / (columns * size)), min(most, limits.most // (columns * size))
        if low <= high:
            return draw_count(r, max(1, low), high), columns


def draw_blocks(r: random.Random, limits: Limits, size: int, least: int) -> Shape:
    rows, columns = draw_rows(r, limits, size, least)
    middle = clamped(draw_count(r, 1, rows), 1, rows)
    return max(1, rows // middle), middle, columns


def draw_images(r: random.Random, limits: Limits, size: int, least: int) -> Shape:
    while True:
        channels, side = r.choice(CHANNELS), r.choice(SIDES)
        if r.random() < 0.2:
            channels = max(1, channels + r.choice(NEIGHBOURS))
        width = max(1, side + r.choice((-1, 1, 3))) if r.random() < 0.2 else side
        image = channels * side * width * size
        low, high = max(2, math.ceil(least / image)), min(1024, limits.most // image)
        if low <= high:
            return draw_count(r, low, high), channels, side, width


# By the first word of a form.
DRAWN: dict[str, Callable[[random.Random, Limits, int, int], Shape]] = {
    "rows": draw_rows,
    "blocks": draw_blocks,
    "images": draw_images,
}
# What a form wants of a shape; the numbers are those of bench/peers.py.
FITS: dict[str, Callable[[Shape], bool]] = {
    "rows of pairs": lambda shape: shape[1] % 2 == 0,
    "rows of many": lambda shape: shape[1] >= 64,
    "images of groups": lambda shape: shape[1] % 4 == 0 and math.prod(shape[2:]) > 1,
}


def fits(form: str, shape: Shape) -> bool:
    return FITS.get(form, lambda shape: True)(shape)


def draw(form: str, r: random.Random, limits: Limits, size: int, least: int) -> Shape:
    while True:
        shape = DRAWN[re.split(r"\W", form)[0]](r, limits, size, least)
        if fits(form, shape):
            return shape


def operators_for(device: str, only: Sequence[str] | None = None) -> list[str]:
    """Those that a device has; `only` names some of them, with or without what follows a '/'."""
    names = [name for name, operator in OPERATORS.items() if device in operator.devices]
    if not only:
        return names
    chosen = [name for name in names if any(name == word or name.startswith(f"{word}/") for word in only)]
    for word in only:
        if not any(name == word or name.startswith(f"{word}/") for name in names):
            raise ValueError(f"there is no operator '{word}'; there are {', '.join(names)}")
    return chosen


def drawn(seed: int, device: str, only: Sequence[str] | None = None, compile_share: float = 0.0) -> Iterable[Cell]:
    """Cells without end, the same for the same seed and options."""
    r = random.Random(seed)
    limits = LIMITS[device]
    families: dict[str, list[str]] = {}
    for name in operators_for(device, only):
        families.setdefault(name.partition("/")[0], []).append(name)
    while True:
        name = r.choice(families[r.choice(list(families))])
        operator = OPERATORS[name]
        backward = operator.again is not None and r.random() < 0.5
        dtype = r.choices(("bf16", "f32", "f16"), (0.5, 0.42, 0.08))[0]
        least = limits.least_backward if backward else limits.least
        shape = draw(operator.form, r, limits, TYPES[dtype].itemsize, least)
        layout = r.choices(LAYOUTS, (0.8, 0.1, 0.1))[0]
        if operator.form.startswith("images") or (layout == "padded" and not operator.form.startswith("rows")):
            layout = "dense"
        yield Cell(name, backward, shape, dtype, layout, r.random() < compile_share)


# ---- the grid --------------------------------------------------------------------------------------------------------

GRID_BYTES = (8 << 20, 72 << 20, 512 << 20, 2 << 30)
# The batch follows from the bytes; channels and sides of ResNet, MobileNet, ConvNeXt and diffusion models.
GRID_IMAGES = (
    (64, 112),
    (64, 56),
    (256, 56),
    (128, 28),
    (512, 28),
    (1024, 14),
    (2048, 7),
    (96, 56),
    (320, 64),
    (33, 57),
)


def grid_shapes(operator: Operator) -> Iterable[tuple[Callable[[int], Shape], Sequence[int]]]:
    """The shape with so many rows (or images), and how many bytes a call is to move."""
    if operator.form.startswith("images"):
        for channels, side in GRID_IMAGES:
            yield lambda n, c=channels, s=side: (max(2, n), c, s, s), GRID_BYTES  # type: ignore[misc]
        return
    for i, columns in enumerate(COLUMNS):
        for c, amounts in ((columns, GRID_BYTES), (columns + NEIGHBOURS[i % len(NEIGHBOURS)], GRID_BYTES[1:3])):
            if operator.form == "blocks":
                yield lambda n, c=c: (min(8, n), max(1, n // 8), c), amounts  # type: ignore[misc]
            else:
                yield lambda n, c=c: (n, c), amounts  # type: ignore[misc]


def grid(only: Sequence[str] | None = None, compile_share: float = 0.0) -> list[Cell]:
    """The fixed cells of bench/results, in an order in which every part, and what a time limit leaves, is a sample of
    the whole."""
    r, cells = random.Random(0), []
    for name in operators_for("cuda", only):
        operator = OPERATORS[name]
        for shape, amounts in grid_shapes(operator):
            if not fits(operator.form, shape(8)):
                continue
            for dtype in ("bf16", "f32"):
                for backward in (False, True) if operator.again is not None else (False,):
                    each = Cell(name, backward, shape(8), dtype).nbytes / 8
                    for amount in amounts:
                        made = shape(clamped(round(amount / each), 1, LIMITS["cuda"].rows))
                        cells.append(Cell(name, backward, made, dtype, compile=r.random() < compile_share))
    cells = list(dict.fromkeys(cells))
    r.shuffle(cells)
    return cells


# Calls through autograd in bf16 that are to take at most so many microseconds on an H200.
GOALS = {
    ("softmax", (16384, 8192)): 325.0,
    ("rms_norm", (16384, 8192)): 340.0,
    ("layer_norm", (16384, 8192)): 340.0,
    ("cross_entropy", (8192, 128256)): 1100.0,
    ("cross_entropy", (16384, 32000)): 600.0,
    ("cross_entropy", (8192, 50257)): 550.0,
}


def goals() -> list[Cell]:
    return [Cell(op, True, shape, "bf16") for op, shape in GOALS]
