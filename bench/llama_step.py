"""A training step of a Llama of 1.2 billion parameters:  python bench/llama_step.py [--compile] [--profile]

The shapes of Llama 3.2 1B, built from its configuration, in bf16, with sequences of random tokens and PyTorch's fused
AdamW. Forward, backward and step are measured as they are, with tn.patch, and with --compile each of them compiled, one
way after the other, by events around whole steps; a way's time is its median. Peak memory is that of the way alone.
With --profile each way also says which kernels its time goes to, and where memory is kept for the backward pass.
Needs a GPU, and the package transformers. Writes bench/results/llama-step-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tenon.torch as tn
from gpu import event_us, keep_busy
from run import environment, write_result
from step_profile import held, kept, kernels, show

SHAPES: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "use_cache": False,
}
WARM, TURNS = 3, 9


def build(layers: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**SHAPES, "num_hidden_layers": layers}, attn_implementation="sdpa")
    torch.manual_seed(0)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    return model.train()


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> Callable[[], object]:
    def step() -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def measure(name: str, options: argparse.Namespace, tokens: torch.Tensor) -> dict[str, Any]:
    """The model is made anew: what another way keeps would count as this one's memory."""
    model = build(options.layers)
    report = str(tn.patch(model, logits_mib=options.logits_mib)) if "patched" in name else ""
    if "compiled" in name:
        model = torch.compile(model)  # type: ignore[assignment]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    step = step_of(model, optimizer, tokens)
    losses = [float(step()) for _ in range(WARM)]  # type: ignore[arg-type]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = [event_us(step) / 1e3 for _ in range(TURNS)]
    peak = torch.cuda.max_memory_allocated() / 2**30
    profile = profile_of(model, optimizer, step, tokens) if options.profile else {}
    del model, optimizer, step
    gc.collect()
    torch.cuda.empty_cache()
    row = {"way": name, "ms": round(statistics.median(times), 2), "peak_gib": round(peak, 2), "losses": losses}
    rate = tokens.numel() / row["ms"] * 1e3
    print(f"  {name:20} {row['ms']:8.1f} ms  {row['peak_gib']:6.2f} GiB  {rate:9.0f} tokens/s", flush=True)
    for title, found in profile.items():
        print(f"\n  {title}")
        show(found)
    return {**row, "report": report, **profile}


def profile_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: Callable[[], object], tokens: torch.Tensor
) -> dict[str, Any]:
    memory = kept(model, lambda: model(input_ids=tokens, labels=tokens))
    return {"memory": [*held(model, optimizer), *memory], "kernels": kernels(step)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=SHAPES["num_hidden_layers"])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--compile", action="store_true", help="the compiled ways, too: each takes a minute or more")
    parser.add_argument("--profile", action="store_true", help="kernels by time, and memory by where it is kept")
    parser.add_argument("--logits-mib", type=int, default=1024, help="of tn.patch")
    options = parser.parse_args()
    tokens = torch.randint(SHAPES["vocab_size"], (options.batch, options.length), device="cuda")
    keep_busy(1)
    ways = ["eager", "patched"] + (["compiled", "patched, compiled"] if options.compile else [])
    rows = [measure(way, options, tokens) for way in ways]
    print(rows[1]["report"])
    how = {"batch": options.batch, "length": options.length, "layers": options.layers, "logits_mib": options.logits_mib}
    method = f"medians of {TURNS} steps after {WARM}, by events; each way on a model of its own"
    found = {**environment(), "gpu": torch.cuda.get_device_name(), "method": method, **how, "rows": rows}
    write_result("llama-step", found)


if __name__ == "__main__":
    main()
