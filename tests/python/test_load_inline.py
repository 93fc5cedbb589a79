"""tenon.torch.load and load_inline in the place of torch.utils.cpp_extension's."""

from __future__ import annotations

from pathlib import Path

import here
import pytest
import torch

import tenon
import tenon.torch as tn
from tenon.torch import load, load_inline

KERNELS = Path(__file__).resolve().parents[1] / "cli/from"

SCALE = """
#include <torch/extension.h>

__global__ void scale_kernel(const float *x, float *y, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor;  // each element
}
__global__ void shift_kernel(const float *x, float *y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + by;
}
"""
LAUNCH = "<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), factor, x.numel());"


def test_an_extension_changes_by_its_import() -> None:
    """A file as tutorials have it: AT_DISPATCH, PYBIND11_MODULE, checks. There is a gradient as well."""
    module = load(name="swish", sources=[KERNELS / "swish_extension.cu"], extra_cuda_cflags=["-O3"])
    assert module is not None
    x = here.randn(5, 7, requires_grad=True)
    y = module.swish_forward(x, 2.0)
    expected = x * torch.sigmoid(2 * x)
    assert torch.allclose(y, expected, atol=1e-6)
    (given,) = torch.autograd.grad(y.sum(), x)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    assert torch.allclose(given, wanted, atol=1e-5)
    assert torch.allclose(module.swish_forward(x.half().t(), 1.0), torch.nn.functional.silu(x.half().t()), atol=2e-3)


def test_a_wrapper_in_cpp_and_a_launcher_in_cuda() -> None:
    cpp = """
    torch::Tensor scale_cuda(torch::Tensor x, double factor);
    torch::Tensor scale(torch::Tensor input, double factor) {
        TORCH_CHECK(input.is_cuda(), "CUDA; please");
        return scale_cuda(input, factor);
    }
    torch::Tensor twice(torch::Tensor input) { return scale_cuda(input, 2.0f); }
    """
    cuda = (
        SCALE
        + f"""
    torch::Tensor scale_cuda(torch::Tensor x, double factor) {{
        auto y = torch::empty_like(x);
        scale_kernel{LAUNCH}
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return y;
    }}"""
    )
    module = load_inline("scaling", [cpp], [cuda], functions={"scale": "x times a factor", "twice": ""})
    x = here.randn(33)
    assert torch.equal(module.scale(x, 3.0), x * 3) and torch.equal(module.twice(x), x * 2)
    assert module.scale.__doc__ == "x times a factor"
    with pytest.raises(TypeError, match=r"scale_cuda\(\) takes 2 arguments \(x, factor\), not 1"):
        module.scale(x)
    with pytest.raises((TypeError, ValueError), match="x has type f64, needs f32"):
        module.scale(x.double(), 3.0)


def test_tensors_of_the_caller_and_kernels_one_after_the_other() -> None:
    cuda = (
        SCALE
        + f"""
    void scale_shift(torch::Tensor out, torch::Tensor x, float factor, float by) {{
        const at::cuda::OptionalCUDAGuard guard(x.device());
        auto stream = at::cuda::getCurrentCUDAStream();
        auto y = torch::empty_like(x);
        const int n = x.numel(), threads = 128;
        scale_kernel{LAUNCH}
        shift_kernel<<<(n + threads - 1) / threads, threads, 0, stream>>>(
            y.data_ptr<float>(), out.data_ptr<float>(), -by / 2, n);
    }}"""
    )
    module = load_inline("both", cuda_sources=cuda)
    x, out = here.randn(2, 5), here.zeros(2, 5)
    assert module.scale_shift(out, x, 3.0, 1.0) is None
    assert torch.allclose(out, x * 3 - 0.5)


def test_four_files_as_in_the_documents() -> None:
    """docs/from-cpp-extension.md: a launcher with pointers and a stream in .cu, a wrapper around it in .cpp."""
    cuda = """
    __global__ void add_constant_kernel(const float *x, float *out, float c, int64_t n) {
        int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
        if (i < n) out[i] = x[i] + c;
    }
    void add_constant_launch(const float *x, float *out, float c, int64_t n, cudaStream_t stream) {
        add_constant_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, out, c, n);
    }"""
    cpp = """
    #include <torch/extension.h>
    void add_constant_launch(const float *x, float *out, float c, int64_t n, cudaStream_t stream);
    void add_constant(const torch::Tensor &x, torch::Tensor &out, double c) {
        TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat, "x must be float32 on a GPU");
        add_constant_launch(x.data_ptr<float>(), out.data_ptr<float>(), (float)c, x.numel(),
                            at::cuda::getCurrentCUDAStream());
    }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("add_constant", &add_constant); }
    """
    module = load_inline("my_ops", cpp, cuda)
    x, out = here.randn(3, 4), here.zeros(3, 4)
    module.add_constant(x, out, 2.5)
    assert torch.equal(out, x + 2.5)


def test_launchers_that_take_pointers() -> None:
    module = load("relu", [KERNELS / "scale_bias_relu.cu"])
    assert module is not None
    x, scale, bias, y = here.randn(4, 6), here.randn(6), here.randn(6), here.zeros(4, 6)
    module.forward(x, scale, bias, y, 4, 6)
    assert torch.allclose(y, torch.relu(x * scale + bias), atol=1e-6)


@pytest.mark.skipif(here.DEVICE == "cpu", reason="no formula could be read from them: they are for GPUs")
def test_kernels_without_a_formula() -> None:
    rms = load("rms", [KERNELS / "rms_norm_template.cu"])
    assert rms is not None
    for dtype in (torch.float32, torch.bfloat16):
        x, weight = here.randn(2, 3, 300).to(dtype), here.randn(300).to(dtype)
        out = torch.zeros_like(x)
        rms.rms_norm(out, x, weight, 1e-5)
        wanted = torch.nn.functional.rms_norm(x.float(), (300,), weight.float(), 1e-5)
        torch.testing.assert_close(out.float(), wanted, rtol=0.02, atol=0.02)
    a, b = here.randn(33, 20), here.randn(20, 45)
    product = load("product", [KERNELS / "matmul_naive.cu"])
    assert product is not None
    torch.testing.assert_close(product.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    tiled = load("tiled", [KERNELS / "transpose_tiled.cu"])
    assert tiled is not None and torch.equal(tiled.transpose(a), a.t())
    rows = load("rows", [KERNELS / "softmax_rows.cu"])
    assert rows is not None
    torch.testing.assert_close(rows.softmax_rows(a), a.softmax(-1))
    parts = load("parts", [KERNELS / "block_sum.cu"])
    assert parts is not None
    torch.testing.assert_close(parts.block_sum(a.flatten()).sum(), a.sum(), rtol=1e-4, atol=1e-4)


def test_updates_in_place() -> None:
    cuda = (
        (KERNELS / "saxpy_main.cu").read_text().partition("int main")[0]
        + """
    torch::Tensor saxpy_new(float a, torch::Tensor x, torch::Tensor y0) {
        auto y = y0.clone();
        saxpy<<<(x.numel() + 255) / 256, 256>>>(x.numel(), a, x.data_ptr<float>(), y.data_ptr<float>());
        return y;
    }"""
    )
    module = load_inline("axpy", "", cuda)
    x, y = here.randn(9), here.randn(9)
    before = y.clone()
    assert torch.allclose(module.saxpy_new(2.0, x, y), 2 * x + y) and torch.equal(y, before)


@pytest.mark.parametrize(
    "statement",
    ["auto w = torch::matmul(x, x);", "y.zero_();", "auto y2 = x.view({-1}).sum();", "std::vector<int> v;"],
)
def test_what_else_the_cpp_does_is_named(statement: str) -> None:
    cuda = (
        SCALE
        + f"""torch::Tensor f(torch::Tensor x, float factor) {{
        auto y = torch::empty_like(x); {statement} scale_kernel{LAUNCH} return y; }}"""
    )
    with pytest.raises(NotImplementedError, match="f does more than start kernels: `") as error:
        load_inline("more", "", cuda)
    assert "tenon.kernel(" in str(error.value)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gates is torch::PackedTensorAccessor32"):
        load("lstm", [KERNELS / "accessors.cu"])
    with pytest.raises(ValueError, match="there is no function nowhere with a body"):
        load_inline("scaling", "", SCALE, functions=["nowhere"])
    with pytest.raises(ValueError, match="the text has no __global__ function"):
        load_inline("nothing", "int f();", "int g();")
    (tmp_path / "a.cpp").write_text("int f();")
    with pytest.raises(ValueError, match=r"there is no \.cu file"):
        load("nothing", [tmp_path / "a.cpp"])


def test_flags_and_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["-O3", "-DTWO=2", "--use_fast_math", "-gencode=arch=compute_90,code=sm_90"]
    module = load_inline("flags", "", SCALE, functions=[], extra_cuda_cflags=flags, verbose=True)
    said = capsys.readouterr().out
    assert "left out, since NVRTC has no use for it: -O3 -gencode=arch=compute_90,code=sm_90" in said
    assert "flags_scale_kernel(x: f32[*n], factor: float) -> y: f32[*n]" in said and "formula: y = x * factor" in said
    assert isinstance(module.scale_kernel, tenon.Kernel)
    assert "-DTWO=2 --use_fast_math" in module.scale_kernel.text()


def test_a_file_with_operators_is_loaded_as_before(plugin: Path) -> None:
    assert tn.load(plugin) is None
