"""tn.nn.BatchNorm1d, 2d and 3d beside torch's: statistics, an activation and a residual, transforms."""

from __future__ import annotations

from typing import Any

import here
import pytest
import torch
import torch.nn.functional as F
from cases import assert_close
from torch import Tensor, nn
from torch.nn.utils import fusion

import tenon.torch as tn


def test_nothing_loses_an_activation() -> None:
    conv, norm = nn.Conv2d(3, 4, 3).eval(), tn.nn.BatchNorm2d(4, act="relu").eval()
    with pytest.raises(NotImplementedError, match=r"convert_sync_batchnorm would lose the activation of tn\.nn\.Batch"):
        nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(conv, norm))
    with pytest.raises(NotImplementedError, match="fuse_conv_bn_eval would lose"):
        fusion.fuse_conv_bn_eval(conv, norm)
    with pytest.raises(NotImplementedError, match="fuse_linear_bn_eval would lose"):
        fusion.fuse_linear_bn_eval(nn.Linear(3, 4).eval(), tn.nn.BatchNorm1d(4, act="relu").eval())
    assert norm.running_var is not None and norm.eps == 1e-5  # others may ask

    plain = tn.nn.BatchNorm2d(4).eval()
    x = torch.randn(2, 3, 5, 5)
    assert_close(fusion.fuse_conv_bn_eval(conv, plain)(x), plain(conv(x)), scale=10)
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(plain), nn.SyncBatchNorm)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("act", ["relu", "silu"])
def test_batch_norm_with_residual_and_activation(act: str, training: bool) -> None:
    ours, theirs = tn.nn.BatchNorm2d(6, act=act).to(here.DEVICE), nn.BatchNorm2d(6).to(here.DEVICE)
    assert repr(ours).endswith(f"act={act!r})")
    x, r = here.randn(4, 6, 3, 3), here.randn(4, 6, 3, 3)
    ours(x), theirs(x)
    ours.train(training), theirs.train(training)
    a, b = (t.requires_grad_() for t in (x.clone(), r.clone()))
    c, d = (t.requires_grad_() for t in (x.clone(), r.clone()))
    have, want = ours(a, b), getattr(F, act)(theirs(c) + d)
    assert_close(have, want)
    have.square().sum().backward()
    want.square().sum().backward()
    for m, o in ((a, c), (b, d)):
        assert_close(m.grad, o.grad, scale=4.0)
    for m, o in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(m.grad, o.grad, scale=4.0)


@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_in_transforms(tracked: bool) -> None:
    """Training under torch.func.grad, with statistics that are arguments, or none."""
    x, results = here.randn(6, 5), []
    for module in (tn.nn.BatchNorm1d(5, track_running_stats=tracked), nn.BatchNorm1d(5, track_running_stats=tracked)):
        module.to(here.DEVICE)
        params = {name: p.detach() for name, p in module.named_parameters()}
        buffers = {name: b.clone() for name, b in module.named_buffers()}

        def loss(params: Any, buffers: Any, module: nn.Module = module) -> Tensor:
            y: Tensor = torch.func.functional_call(module, (params, buffers), (x,))
            return y.pow(3).sum()

        results.append((torch.func.grad(loss)(params, buffers), buffers))
    for name, grad in results[1][0].items():
        assert_close(results[0][0][name], grad, scale=20)
    for name, buffer in results[1][1].items():
        assert_close(results[0][1][name].double(), buffer.double(), scale=2)


def test_statistics_that_are_not_kept_have_their_own_type() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        x = here.randn(6, 3, dtype=torch.float64)
        y = tn.nn.BatchNorm1d(3, track_running_stats=False).to(here.DEVICE)(x)
        assert_close(y, nn.BatchNorm1d(3, track_running_stats=False).to(here.DEVICE)(x), "f64", scale=10)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_statistics_of_f64_are_f64(momentum: float | None) -> None:
    modules = [m.BatchNorm1d(2, momentum=momentum).to(here.DEVICE, torch.float64) for m in (tn.nn, nn)]
    for shift in (1e8, -3.0):
        x = shift + here.randn(6, 2, 5, dtype=torch.float64)
        ours, theirs = (module(x) for module in modules)
        assert_close(ours, theirs, "f64", scale=1e8)
    for name, buffer in modules[1].named_buffers():
        assert_close(dict(modules[0].named_buffers())[name].double(), buffer.double(), "f64", scale=10)


ODD = {
    "empty": torch.zeros(0, 3),
    "no places": torch.zeros(2, 3, 0),
    "infinite": torch.tensor([[1.0, torch.inf, 2.0], [2.0, 1.0, -torch.inf]]),
    "nan": torch.tensor([[1.0, torch.nan, 2.0], [2.0, 1.0, 3.0]]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ODD)
def test_statistics_of_odd_batches(kind: str, dtype: torch.dtype) -> None:
    if kind == "infinite" and here.DEVICE != "cpu":
        pytest.skip("on GPUs it is for torch's kernels to say whether inf or NaN")
    modules = [m.BatchNorm1d(3).to(here.DEVICE, dtype) for m in (tn.nn, nn)]
    for module in modules:
        module(ODD[kind].to(here.DEVICE, dtype))
    for ours, theirs in zip(modules[0].buffers(), modules[1].buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("channels", [1, 4])
def test_statistics_stay_where_the_call_is_refused(channels: int, affine: bool, dtype: torch.dtype) -> None:
    module = tn.nn.BatchNorm1d(3, affine=affine).to(here.DEVICE, dtype)
    name = "weight" if affine else "running_mean"
    with pytest.raises(ValueError, match=rf"batch_norm: {name} has shape \(3\), but c is {channels} from input"):
        module(here.ones(5, channels, dtype=dtype))
    assert module.running_mean is not None and module.running_var is not None
    assert not module.running_mean.any() and (module.running_var == 1).all()
