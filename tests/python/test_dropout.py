"""tn.nn.Dropout: what its masks depend on, and that the backward pass has the same ones."""

from __future__ import annotations

import threading

import here
import pytest
import torch
import torch.utils.checkpoint
from cases import assert_close
from torch import Tensor, nn

import tenon.torch as tn


def test_dropout_in_place() -> None:
    x = here.ones(1000)
    assert tn.nn.Dropout(inplace=True)(x) is x and set(x.tolist()) == {0.0, 2.0}


class TestDropout:
    X = here.ones(200, 100)

    @pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
    def test_seeded_by_torch(self, backend: str | None) -> None:
        torch._dynamo.reset()
        module = tn.nn.Dropout(0.3)
        call = torch.compile(module, fullgraph=True, backend=backend) if backend else module
        torch.manual_seed(5)
        first, second = call(self.X), call(self.X)
        torch.manual_seed(5)
        assert torch.equal(call(self.X), first)
        assert not torch.equal(first, second)
        assert abs((first == 0).double().mean().item() - 0.3) < 0.02
        assert_close(first[first != 0], torch.full_like(first[first != 0], 1 / 0.7))

    @pytest.mark.parametrize("between", [False, True], ids=["alone", "others draw too"])
    def test_many_calls(self, between: bool) -> None:
        module = tn.nn.Dropout(0.5)

        def masks() -> list[Tensor]:
            torch.manual_seed(9)
            made = []
            for _ in range(20):
                made.append(module(self.X) == 0)
                if between:
                    here.rand(4096)
            return made

        first, second = masks(), masks()
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert len({tuple(mask.flatten().tolist()) for mask in first}) == len(first)
        shares = torch.stack(first).double().mean((1, 2))
        assert (shares - 0.5).abs().max() < 0.02

    @pytest.mark.parametrize("count", [1, 12])
    def test_checkpoint(self, count: int) -> None:
        """What is computed again in the backward pass has the masks of the first time."""
        model = nn.Sequential(*(tn.nn.Dropout(0.1) for _ in range(count)))
        x = self.X.clone().requires_grad_()
        for _ in range(3):
            y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
            (grad,) = torch.autograd.grad(y.sum(), x)
            assert_close(grad, y)

    def test_recorded_after_inference_mode(self) -> None:
        module, x = tn.nn.Dropout(0.5), self.X.clone().requires_grad_()
        for _ in range(8):
            with torch.inference_mode():
                module(self.X)
        for _ in range(8):
            y = module(x)
            (grad,) = torch.autograd.grad(y.sum(), x)
            assert_close(grad, y)

    @pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")
    def test_two_streams_and_two_threads(self) -> None:
        module = tn.nn.Dropout(0.5)
        made: dict[int, list[Tensor]] = {0: [], 1: []}

        def work(k: int) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                made[k] = [module(self.X) == 0 for _ in range(50)]
                torch.cuda.current_stream().synchronize()

        torch.cuda.synchronize()
        threads = [threading.Thread(target=work, args=(k,)) for k in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        masks = torch.stack(made[0] + made[1]).flatten(1).double()
        assert len({tuple(mask[:64].tolist()) for mask in masks}) == 100
        assert (masks.mean(1) - 0.5).abs().max() < 0.02

    def test_same_mask_in_the_backward_pass(self) -> None:
        x = self.X.clone().requires_grad_()
        y = tn.nn.Dropout(0.5)(x)
        y.sum().backward()
        assert_close(x.grad, y)

    def test_not_in_training(self) -> None:
        module = tn.nn.Dropout(0.5).eval()
        assert module(self.X) is self.X
        assert repr(module) == repr(nn.Dropout(0.5))
        assert tn.nn.Dropout(0.0)(self.X) is self.X

    def test_everything(self) -> None:
        x = self.X.clone().requires_grad_()
        y = tn.nn.Dropout(1.0)(x)
        y.sum().backward()
        assert x.grad is not None and not y.any() and not x.grad.any()

    def test_probability(self) -> None:
        with pytest.raises(ValueError, match="probability"):
            tn.nn.Dropout(1.5)

    @pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")
    def test_each_replay_of_a_graph_has_a_mask_of_its_own(self) -> None:
        module = tn.nn.Dropout(0.5)
        module(self.X)  # compiled before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(self.X)
        graph.replay()
        first = y.clone()
        graph.replay()
        assert not torch.equal(first, y)
