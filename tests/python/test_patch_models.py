"""tn.patch on models of transformers and torchvision (bench/models.py): losses and gradients as without, over steps."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import here
import pytest
import torch
import torch.distributed as dist
from cases import assert_close
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tenon.torch as tn
from models import FAMILIES, Family
from step_profile import kept

pytest.importorskip("transformers")
pytest.importorskip("torchvision")
if here.DEVICE != "cpu":
    pytest.skip("make test-gpu has no network, and so not these models", allow_module_level=True)

STEPS = dict.fromkeys(FAMILIES, 3) | {"llama": 200}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models as small as these wait more for threads than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(family: Family) -> nn.Module:
    torch.manual_seed(0)
    return family.build().train()


def train(model: nn.Module, family: Family, steps: int) -> tuple[list[float], dict[str, Tensor]]:
    """The losses, and the gradients of the first step."""
    generator, losses, grads = torch.Generator().manual_seed(1), [], {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        loss = model(**family.batch(generator))["loss"]
        loss.backward()
        losses.append(float(loss.detach()))
        if step == 0:
            grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
    return losses, grads


@pytest.mark.parametrize("name", FAMILIES)
def test_trains_the_same(name: str) -> None:
    family = FAMILIES[name]
    plain = build(family)
    patched = copy.deepcopy(plain)
    keys = list(patched.state_dict())
    report = tn.patch(patched)
    by = {row.by for row in report.replaced}
    assert all(any(wanted in one for one in by) for wanted in family.replaced), report
    want, want_grads = train(plain, family, STEPS[name])
    losses, grads = train(patched, family, STEPS[name])
    assert_close([torch.tensor(losses)], [torch.tensor(want)], scale=5)
    assert grads.keys() == want_grads.keys()
    for key, grad in want_grads.items():
        assert float((grads[key] - grad).abs().max()) < 1e-4 * float(grad.abs().max()) + 1e-6, key
    assert list(patched.state_dict()) == keys
    if STEPS[name] > 100:
        assert want[-1] < want[0] / 2  # it has learnt what there is to learn


def decoder() -> tuple[nn.Module, dict[str, Tensor]]:
    model = build(FAMILIES["llama"])
    return model, FAMILIES["llama"].batch(torch.Generator().manual_seed(1))


def test_keeps_less() -> None:
    """Of a layer: its two sums, what attention has on both sides, and what is on both sides of the gate."""
    model, batch = decoder()
    whole = sum(row["mib"] for row in kept(model, lambda: model(**batch)))
    tn.patch(model)
    rows = kept(model, lambda: model(**batch))
    assert sum(row["mib"] for row in rows) < 0.6 * whole
    of_layers = {row["where"].rpartition(".")[2] for row in rows if "layers" in row["where"]}
    assert of_layers == {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
    mlp = [row for row in rows if row["where"].endswith("mlp")]
    assert [(row["what"], row["times"]) for row in mlp] == [("float32[4, 12, 72]", 2 * 2)]


def test_generates_the_same() -> None:
    model, batch = decoder()
    model.eval()
    prompt: Any = {"inputs": batch["input_ids"][:, :5], "max_new_tokens": 6, "do_sample": False}
    want = model.generate(**prompt)  # type: ignore[operator]
    tn.patch(model)
    assert torch.equal(model.generate(**prompt), want)  # type: ignore[operator]


def test_checkpoints_gradients() -> None:
    model, batch = decoder()
    want = model(**batch)["loss"]
    tn.patch(model)
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    loss = model(**batch)["loss"]
    loss.backward()
    assert_close([loss], [want])


def test_losses_take_what_the_trainer_gives() -> None:
    """The number of tokens of a whole batch, labels that are shifted already, and none."""
    model, batch = decoder()
    patched = copy.deepcopy(model)
    tn.patch(patched)
    for more in ({"num_items_in_batch": torch.tensor(9)}, {"shift_labels": batch["labels"].roll(-1, 1)}):
        assert_close([patched(**batch, **more)["loss"]], [model(**batch, **more)["loss"]])
    assert patched(input_ids=batch["input_ids"]).loss is None


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_several_processes(wrap: str, first: bool) -> None:
    """Patched first or wrapped first: parameters become DTensors, and back in the forward pass."""
    model, batch = decoder()
    want, _ = train(copy.deepcopy(model), FAMILIES["llama"], 2)
    if first:
        tn.patch(model)
    if wrap == "fsdp":
        for layer in model.model.layers:  # type: ignore[union-attr, operator]
            fully_shard(layer)
        fully_shard(model)
    wrapped = DistributedDataParallel(model) if wrap == "ddp" else model
    if not first:
        assert tn.patch(wrapped).count >= 13
    losses, _ = train(wrapped, FAMILIES["llama"], 2)
    assert_close([torch.tensor(losses)], [torch.tensor(want)], scale=5)
    with torch.profiler.profile() as profile:
        wrapped(**batch)
    assert {"tenon::rms_norm", "tenon::swiglu", "tenon::rope"} <= {e.key for e in profile.key_averages()}


@pytest.mark.parametrize("autocast", [False, True])
def test_logits_are_made_when_somebody_looks(autocast: bool) -> None:
    family = FAMILIES["llama"]
    model = build(family)
    ours = copy.deepcopy(model)
    tn.patch(ours)
    batch = family.batch(torch.Generator().manual_seed(1))
    results = []
    for m in (model, ours):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = m(**batch)
        assert out["logits"].shape[:2] == batch["input_ids"].shape
        assert out["logits"].dtype == (torch.bfloat16 if autocast else torch.float32)
        assert ("not made yet" in repr(out["logits"])) == (m is ours)
        (out["loss"] + out["logits"].float().square().mean()).backward()
        grads = {n: p.grad for n, p in m.named_parameters() if p.grad is not None}
        results.append((out["loss"].detach(), out["logits"].detach(), grads))
    tolerance = 0.02 if autocast else 1e-5
    torch.testing.assert_close(results[0], results[1], rtol=tolerance, atol=tolerance)


def test_room_for_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    room = list[int]()

    def loss(*given: Any, logits_mib: int, **named: Any) -> Tensor:
        room.append(logits_mib)
        made: Tensor = tn.linear_cross_entropy(*given, logits_mib=logits_mib, **named)
        return made

    monkeypatch.setattr("tenon.torch._patch.logits._loss", loss)
    for given, want in (({}, 1024), ({"logits_mib": 7}, 7)):
        model, batch = decoder()
        tn.patch(model, **given)
        pickle.loads(pickle.dumps(model))(**batch)
        assert room.pop() == want
    with pytest.raises(ValueError, match="logits_mib is 0, must be a number of MiB from 1 on"):
        tn.patch(model, logits_mib=0)


def test_logits_of_weights_that_are_gone() -> None:
    family = FAMILIES["llama"]
    model = build(family)
    tn.patch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = model(**family.batch(torch.Generator().manual_seed(1)))
    out["loss"].backward()
    with torch.no_grad():
        assert out["logits"].isfinite().all()
    optimizer.step()
    with pytest.raises(RuntimeError, match="before the optimizer's step"):
        out["logits"].sum()
    assert type(model.eval()(**family.batch(torch.Generator().manual_seed(1)))["logits"]) is Tensor
