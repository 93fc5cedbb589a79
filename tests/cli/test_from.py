"""`tenon new --from`: what is read from kernels as people write them (tests/cli/from)."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from command import ROOT, has_nvrtc, tenon

KERNELS = ROOT / "tests/cli/from"

# Of each file its kernels: the contract, the launch, and the formula where there is one.
READ: dict[str, list[tuple[str, str, str]]] = {
    "add_constant": [
        ("op(input: f32[*n], constant: float) -> output: f32[*n]", "elements", "output = input + constant"),
    ],
    "bias_gelu": [
        (
            "op(x: f32[M, N], b: f32[N]) -> y: f32[M, N]",
            "elements",
            "y = (0.5 * (x + b) * (1.0 + erf((x + b) * 0.70710678)))",
        ),
    ],
    "block_sum": [
        ("op(in: f32[n]) -> partial: f32[(n + 256 - 1) / 256]", "grid=(n + 256 - 1) / 256 block=256", ""),
    ],
    "convolve_1d": [("op(in: f32[*n], k: f32[*n], r: int) -> out: f32[*n]", "elements", "")],
    "gelu_half": [
        (
            "op(in: f16[*count]) -> out: f16[*count]",
            "elements",
            "out = ((0.5 * in * (1.0 + tanh(0.7978845608 * (in + 0.044715 * in * in * in)))))",
        ),
    ],
    "histogram": [("op(values: i32[*n], bins: i32[*n_bins]!)", "grid=ceil_div(n, 256) block=256", "")],
    "layer_norm_warp": [
        (
            "op(inp: f32[N, C], weight: f32[C], bias: f32[C], eps: float)"
            " -> out: f32[N, C], mean: f32[N], rstd: f32[N]",
            "rows",
            "",
        ),
    ],
    "matmul_naive": [("op(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N]", "tiles(16, 16)", "")],
    "optimizers": [
        (
            "sgd_momentum(w: f32[*count]!, g: f32[*count], v: f32[*count]!, lr: float, momentum: float)",
            "elements",
            "v = momentum * v + g; w = w - (lr * v)",
        ),
        (
            "adam(p: f32[*n]!, grad: f32[*n], exp_avg: f32[*n]!, exp_avg_sq: f32[*n]!, lr: float, beta1: float,"
            " beta2: float, eps: float, correction1: float, correction2: float)",
            "elements",
            "g = grad; m = beta1 * exp_avg + (1.0 - beta1) * g; v = beta2 * exp_avg_sq + (1.0 - beta2) * g * g;"
            " exp_avg = m; exp_avg_sq = v; p = p - (lr * (m / correction1) / (sqrt(v / correction2) + eps))",
        ),
    ],
    "rgb_to_gray": [("op(rgb: u8[height, width, 3]) -> gray: u8[height, width]", "tiles(16, 16)", "")],
    "rms_norm_template": [
        (
            "op(input: T[*r, hidden_size], weight: T[hidden_size], epsilon: float) -> out: T[*r, hidden_size]",
            "grid=(input_count / hidden_size) block=256",
            "",
        ),
    ],
    "row_scale": [
        (
            "op(in: f32[rows, cols], s: f32[rows]) -> out: f32[rows, cols]",
            "grid=(ceil_div(cols, 256), out_count / cols) block=256",
            "out = in * s",
        ),
    ],
    "saxpy_main": [("op(a: float, x: f32[*n], y: f32[*n]!)", "grid=(n + 255) / 256 block=256", "y = a * x + y")],
    "scale_bias_relu": [
        (
            "scale_bias_relu_forward(x: f32[rows, cols], scale: f32[cols], bias: f32[cols]) -> y: f32[rows, cols]",
            "grid=(ceil_div(cols, 32), ceil_div(rows, 8)) block=(32, 8)",
            "v = x * scale + bias; y = where(v > 0.0, v, 0.0)",
        ),
        (
            "scale_bias_relu_backward(y: f32[rows, cols], scale: f32[cols], dy: f32[rows, cols])"
            " -> dx: f32[rows, cols]",
            "grid=(ceil_div(cols, 32), ceil_div(rows, 8)) block=(32, 8)",
            "dx = where(y > 0.0, dy * scale, 0.0)",
        ),
    ],
    "softmax_rows": [("op(x: f32[*r, cols]) -> y: f32[*r, cols]", "rows shared=8*256", "")],
    "swish_extension": [
        (
            "op(x: T[*size], beta: float) -> y: T[*size]",
            "grid=((size + 256 - 1) / 256) block=256",
            "y = x * (1.0 / (1.0 + exp(-(beta * x))))",
        ),
    ],
    "transpose_tiled": [
        (
            "op(in: f32[height, width]) -> out: f32[width, height]",
            "grid=((width + 32 - 1) / 32, (height + 32 - 1) / 32) block=(32, 8)",
            "",
        ),
    ],
    "vector_add": [("op(a: f32[*n], b: f32[*n]) -> c: f32[*n]", "grid=((n / 4 + 256) / 256) block=256", "")],
}


@pytest.mark.parametrize("name", READ)
def test_contract_launch_and_formula(name: str) -> None:
    done = tenon("new", "op", "--from", KERNELS / f"{name}.cu", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["kernels"]
    assert [(k["signature"], k["launch"], k["formula"]) for k in found] == READ[name]


def test_every_file_is_read() -> None:
    assert {path.stem for path in KERNELS.glob("*.cu")} == {*READ, "accessors"} and len(READ) >= 10


@pytest.mark.parametrize("name", READ)
def test_a_project_of_it_is_built(name: str, tmp_path: Path) -> None:
    """NVRTC, where there is one, takes what is left of the file; a check on the CPU passes where there is a formula.
    What needs headers of CUDA's compiles with those of NVRTC's own version, which need not be here."""
    project = tmp_path / "op"
    compiles = has_nvrtc() and "cooperative_groups" not in (KERNELS / f"{name}.cu").read_text()
    made = tenon("new", "op", project, "--from", KERNELS / f"{name}.cu")
    assert made.returncode == 0, made.stderr
    built = tenon("build", project, "--arch", "90" if compiles else "none")
    assert built.returncode == 0, built.stdout + built.stderr
    if any(formula for _, _, formula in READ[name]):
        words = ("check", "--only-loaded", "--quick", "--case", "values")
        checked = tenon("--load", project / "op.tenon.so", *words)
        assert checked.returncode == 0, checked.stdout
    text = (project / "op.c").read_text()
    assert all(len(line) <= 160 for line in text.splitlines())
    assert "guessed" in text or "read from" in text


@pytest.mark.parametrize("name", READ)
def test_samples_fit_a_gpu(name: str, tmp_path: Path) -> None:
    assert tenon("new", "op", tmp_path / "op", "--from", KERNELS / f"{name}.cu").returncode == 0
    samples = re.findall(r'\{"(.*?)"', (tmp_path / "op/op.c").read_text())
    signatures = " ".join(signature for signature, _, _ in READ[name])
    shapes = [re.findall(r"\w+", shape) for shape in re.findall(r"\[(.*?)\]", signatures)]
    assert samples
    for sample in samples:
        given = re.findall(r"(\w+)=(\[.*?\]|\d+)", sample)
        sizes = {key: math.prod(map(int, re.findall(r"\d+", value))) for key, value in given}
        for shape in shapes:
            assert math.prod(sizes.get(dim, 1) for dim in shape) <= 1 << 26, (sample, shape)


def test_a_shape_that_no_index_tells_is_said_to_be_a_guess(tmp_path: Path) -> None:
    done = tenon("new", "op", tmp_path / "op", "--from", KERNELS / "convolve_1d.cu")
    assert "guessed: k is of the shape of in: its index does not tell its shape" in done.stdout


def test_what_is_the_hosts_is_left_out_and_named(tmp_path: Path) -> None:
    done = tenon("new", "op", tmp_path / "op", "--from", KERNELS / "swish_extension.cu")
    text = (tmp_path / "op/op.cu").read_text()
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert not re.search(r"torch|PYBIND|AT_DISPATCH|#include", code) and "using scalar_t = T;" in code
    assert "swish_forward of line 25 is left out: it is the host's" in text
    assert "left out: #include <torch/extension.h>, PyTorch's" in done.stdout


def test_what_stands_in_the_way_is_said() -> None:
    done = tenon("new", "op", "--from", KERNELS / "accessors.cu", "--json")
    assert done.returncode == 1
    assert "gates is torch::PackedTensorAccessor32" in done.stderr and "const T *gates" in done.stderr


@pytest.mark.parametrize(
    "statement",
    ["y[index[i]] = 1", "y[index[i]] += 1", "y[index[i]] = x[i]", "y[2 * i] = 1", "y[i] += x[n - 1 - i]", "y[i] ^= 1"],
)
def test_no_formula_is_made_up(statement: str, tmp_path: Path) -> None:
    text = f"""__global__ void f(const int *x, const int *index, int *y, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {statement};
    }}"""
    (tmp_path / "f.cu").write_text(text)
    done = tenon("new", "op", "--from", tmp_path / "f.cu", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["kernels"][0]["formula"] == "", done.stdout


SMALL = {
    "no kernel": ("int main() { return 0; }", "has no __global__ function"),
    "nothing written": ("__global__ void f(const float *x, int n) { }", "it writes to none of its parameters"),
    "a pointer to pointers": ("__global__ void f(float **x, float *y) { y[0] = x[0][0]; }", "no tensor has"),
    "an open bracket": ("__global__ void f(const vec<float *x, float *y) { y[0] = x[0]; }", "parameter 1 has no name"),
    "no name": ("__global__ void f(float *y, int) { y[0] = 1; }", "parameter 2 has no name"),
}


@pytest.mark.parametrize("case", SMALL)
def test_what_cannot_be_read(case: str, tmp_path: Path) -> None:
    text, message = SMALL[case]
    (tmp_path / "f.cu").write_text(text)
    done = tenon("new", "op", "--from", tmp_path / "f.cu", "--json")
    assert done.returncode == 1 and message in done.stderr, done.stderr


def read_one(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "f.cu").write_text(text)
    done = tenon("new", "op", "--from", tmp_path / "f.cu", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["kernels"]
    return dict(found)


ELEMENT = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) "
FORMULAS = {
    "y[i] = x[i + 1];": "",  # another element
    "y[i] = x[n - 1 - i];": "",
    "y[i] = fmaxf(x[i], 0.f);": "y = maximum(x[i], 0)",
    "y[i] = x[i] > a ? x[i] : -x[i];": "y = where(x > a, x, -x)",
    "y[i] = (float)x[i] * 2.5e-1f;": "y = x * 2.5e-1",
    "y[i] = __ldg(&x[i]);": "",  # not known
    "for (int k = 0; k < 3; k++) y[i] = x[i] * k;": "",
    "y[i] += x[i];": "y = y + (x)",
    "y[i] = x[i]; y[i] *= y[i] - a;": "",  # assigned twice
}


@pytest.mark.parametrize("statement", FORMULAS)
def test_formulas(statement: str, tmp_path: Path) -> None:
    """A formula is only told where each element is made of the same elements of the inputs."""
    text = f"__global__ void f(const float *x, float *y, float a, int n) {{ {ELEMENT} {statement} }}"
    assert read_one(tmp_path, text)["formula"] == FORMULAS[statement].replace("[i]", "")


SHAPES = {
    "y[(b * h + i) * w + j] = x[b * h * w + i * w + j];": "op(x: f32[*r, h, w]) -> y: f32[*r, h, w]",
    "const float *row = x + i * w; float *out = y + i * w; out[j] = row[j];": "op(x: f32[h, w]) -> y: f32[h, w]",
    "y[j * h + i] = x[i * w + j];": "op(x: f32[h, w]) -> y: f32[w, h]",
    "y[i] = x[i * w + j];": "op(x: f32[h, w]) -> y: f32[h]",
}


@pytest.mark.parametrize("statement", SHAPES)
def test_shapes(statement: str, tmp_path: Path) -> None:
    index = "int j = threadIdx.x, i = blockIdx.y, b = blockIdx.z; if (j >= w || i >= h) return;"
    text = f"__global__ void f(const float *x, float *y, int h, int w) {{ {index} {statement} }}"
    assert read_one(tmp_path, text)["signature"] == SHAPES[statement]
