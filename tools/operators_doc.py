"""docs/operators.md from the table:  python tools/operators_doc.py [--write]

Every operator with its meaning, contract, types, gradient, kernels, what it stands in place of, and how fast it was in
the newest run of bench/operators.py on a GPU. Needs build/tenon, and no Python package. A test compares.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operators.md"
FAMILIES = {
    "softmax": "Softmax",
    "norm": "Normalisation",
    "normalisation": "Normalisation",
    "gemm": "Products",
    "grouped": "Products",
    "scaled": "Products",
    "attention": "Attention",
    "rope": "Rotary embedding",
    "linear_cross_entropy": "Losses",
    "loss": "Losses",
    "losses": "Losses",
    "reduce": "Reductions",
    "reductions": "Reductions",
    "scan": "Cumulative",
    "sorting": "Sorting",
    "histogram": "Counting",
    "move": "Moving data",
    "triangle": "Moving data",
    "index": "Looking up",
    "arithmetic": "Arithmetic",
    "activations": "Activations",
    "gates": "Gates",
    "residual": "The residual stream",
    "optimisers": "Optimisers",
    "quantisation": "Quantisation",
}
# What people would otherwise call, or write.
IN_PLACE_OF = {
    "softmax": "`F.softmax`, `jax.nn.softmax`, `tf.nn.softmax`; with mask and scale, three to four calls",
    "linear": "`F.linear`, `flax.nnx.Linear`, `keras.layers.Dense`; with residual and activation, three calls",
    "matmul": "`torch.matmul`, `jnp.matmul`, `tf.matmul`",
    "attention": "`F.scaled_dot_product_attention`, `jax.nn.dot_product_attention`, `flash_attn_func`; with softcap, "
    "sinks or a window and a bias, five to eight calls",
    "matvec": "`torch.mv`, `jnp.matvec`, `tf.linalg.matvec`",
    "vecmat": "`torch.matmul`, `jnp.vecmat`",
    "outer_product": "`torch.outer`, `jnp.outer`",
    "matmul_add": "`c.addmm_(a, b)` with sums in f32; the gradient accumulation of Megatron",
    "linear_cross_entropy": "`F.cross_entropy(F.linear(x, w, b), target)`; `LigerFusedLinearCrossEntropyLoss`",
    "linear_cross_entropy_tokens": "`log_softmax` of `F.linear(x, w, b)`, gathered by the target, and its entropy",
    "gated_linear": "`F.silu(g) * u` of the halves of `F.linear(x, w)`",
    "linear_int8": "`torch._int_mm` with scales, bias and activation behind it",
    "linear_fp8": "`torch._scaled_mm` with scales for rows, bias and activation",
    "grouped_linear": "`F.grouped_mm`, `jax.lax.ragged_dot`; without them a call for each expert",
    "gated": "`F.silu(g) * u` of the halves of a tensor",
    "layer_norm": "`F.layer_norm`, `flax.linen.LayerNorm`, `keras.layers.LayerNormalization`",
    "cross_entropy": "`F.cross_entropy`, `optax.softmax_cross_entropy_with_integer_labels`, "
    "`tf.nn.sparse_softmax_cross_entropy_with_logits`",
    "cross_entropy_inplace": "`LigerCrossEntropyLoss` of liger-kernel",
    "sum": "`torch.sum`, `jnp.sum`, `tf.reduce_sum`, `np.sum`",
    "log_softmax": "`F.log_softmax`, `jax.nn.log_softmax`, `tf.nn.log_softmax`",
    "logsumexp": "`torch.logsumexp`, `jax.nn.logsumexp`, `tf.reduce_logsumexp`",
    "mean": "`torch.mean`, `jnp.mean`, `tf.reduce_mean`, `np.mean`",
    "max": "`torch.amax`, `jnp.max`, `tf.reduce_max`, `np.max`",
    "min": "`torch.amin`, `jnp.min`, `tf.reduce_min`, `np.min`",
    "argmax": "`torch.argmax`, `jnp.argmax`, `tf.argmax`, `np.argmax`",
    "argmin": "`torch.argmin`, `jnp.argmin`, `tf.argmin`, `np.argmin`",
    "prod": "`torch.prod`, `jnp.prod`, `tf.reduce_prod`, `np.prod`",
    "var": "`torch.var`, `jnp.var`, `tf.math.reduce_variance`, `np.var`",
    "std": "`torch.std`, `jnp.std`, `tf.math.reduce_std`, `np.std`",
    "norm": "`torch.linalg.vector_norm`, `jnp.linalg.norm`, `tf.norm`, `np.linalg.norm`",
    "any": "`torch.any`, `jnp.any`, `tf.reduce_any`, `np.any`",
    "all": "`torch.all`, `jnp.all`, `tf.reduce_all`, `np.all`",
    "group_norm": "`F.group_norm` with an activation, `flax.linen.GroupNorm`, `keras.layers.GroupNormalization`",
    "instance_norm": "`F.instance_norm` with an activation, `flax.linen.InstanceNorm`",
    "add_layer_norm": "`F.layer_norm(x + residual)` and the sum, two calls",
    "add_rms_norm": "`F.rms_norm(x + residual)` and the sum, two calls",
    "cumsum": "`torch.cumsum`, `jnp.cumsum`, `tf.cumsum`, `np.cumsum`",
    "cumprod": "`torch.cumprod`, `jnp.cumprod`, `tf.math.cumprod`, `np.cumprod`",
    "cummax": "`torch.cummax`, `jax.lax.cummax`, `np.maximum.accumulate`",
    "cummin": "`torch.cummin`, `jax.lax.cummin`, `np.minimum.accumulate`",
    "sort": "`torch.sort`, `jnp.sort` and `jnp.argsort`, `tf.sort` and `tf.argsort`",
    "top_k": "`torch.topk`, `jax.lax.top_k`, `tf.math.top_k`",
    "histogram": "`torch.histc`, `jnp.histogram` and `np.histogram` with a range, `tf.histogram_fixed_width`",
    "permute": "`x.permute(dims).contiguous()`, `jnp.transpose`, `np.transpose` with a copy",
    "concat": "`torch.cat`, `jnp.concatenate`, `tf.concat`, `np.concatenate`",
    "pad": "`F.pad`; `jnp.pad` and `np.pad` with modes 'constant', 'reflect', 'edge' and 'wrap'",
    "roll": "`torch.roll`, `jnp.roll`, `tf.roll`, `np.roll`",
    "repeat": "`x.repeat`, `jnp.tile`, `tf.tile`, `np.tile`",
    "triu": "`torch.triu`, `jnp.triu`, `np.triu`",
    "tril": "`torch.tril`, `jnp.tril`, `np.tril`",
    "embedding": "`F.embedding`, `flax.linen.Embed`, `keras.layers.Embedding`",
    "index_select": "`torch.index_select`, `jnp.take`, `tf.gather`, `np.take`",
    "gather": "`torch.gather`, `jnp.take_along_axis`, `np.take_along_axis`",
    "scatter_add": "`torch.scatter_add`, `x.at[index].add`, `np.add.at`",
    "segment_sum": "`jax.ops.segment_sum`, `tf.math.unsorted_segment_sum`, `torch.zeros(…).index_add_`",
    "segment_sum_offsets": "`torch.segment_reduce`, `np.add.reduceat`",
    "one_hot": "`F.one_hot`, `jax.nn.one_hot`, `tf.one_hot`",
    "select": "`torch.where`, `jnp.where`, `tf.where`, `np.where`",
    "batch_norm": "`F.batch_norm` with what follows it: an addition and an activation",
    "batch_norm_infer": "`F.batch_norm(training=False)` with an activation",
    "rope": "rotary embedding, five calls; `apply_rotary_pos_emb` of transformers",
    "rms_norm": "`F.rms_norm`; in other frameworks four to six calls",
    "identity": "`torch.clone`",
    "add": "`torch.add`, `jnp.add`, `np.add`",
    "sub": "`torch.sub`, `jnp.subtract`, `np.subtract`",
    "mul": "`torch.mul`, `jnp.multiply`, `np.multiply`",
    "div": "`torch.div`, `jnp.divide`, `np.divide`",
    "add_constant": "`x + c`",
    "scale": "`x * c`",
    "scale_bias_relu": "`relu(x * scale + bias)`, three calls",
    "bias_act": "`act(x + bias)`, two calls",
    "square": "`torch.square`, `jnp.square`",
    "sqrt": "`torch.sqrt`, `jnp.sqrt`",
    "rsqrt": "`torch.rsqrt`, `jax.lax.rsqrt`",
    "exp": "`torch.exp`, `jnp.exp`",
    "log": "`torch.log`, `jnp.log`",
    "abs": "`torch.abs`, `jnp.abs`",
    "sign": "`torch.sign`, `jnp.sign`",
    "floor": "`torch.floor`, `jnp.floor`",
    "clamp": "`torch.clamp`, `jnp.clip`, `tf.clip_by_value`",
    "pow": "`torch.pow`, `jnp.power`",
    "dot": "`torch.dot`, `jnp.dot` and `np.dot` of vectors, BLAS `dot`",
    "axpy": "`torch.add(y, x, alpha=alpha)`, BLAS `axpy`",
    "nrm2": "`torch.linalg.vector_norm`, `jnp.linalg.norm`, BLAS `nrm2`",
    "lerp": "`torch.lerp`",
    "relu": "`F.relu`, `jax.nn.relu`, `tf.nn.relu`",
    "leaky_relu": "`F.leaky_relu`, `jax.nn.leaky_relu`, `tf.nn.leaky_relu`",
    "prelu": "`F.prelu`, `keras.layers.PReLU`",
    "elu": "`F.elu`, `jax.nn.elu`, `tf.nn.elu`",
    "celu": "`F.celu`, `jax.nn.celu`",
    "selu": "`F.selu`, `jax.nn.selu`, `tf.nn.selu`",
    "sigmoid": "`torch.sigmoid`, `jax.nn.sigmoid`, `tf.nn.sigmoid`",
    "log_sigmoid": "`F.logsigmoid`, `jax.nn.log_sigmoid`",
    "hard_sigmoid": "`F.hardsigmoid`, `jax.nn.hard_sigmoid`",
    "tanh": "`torch.tanh`, `jnp.tanh`, `tf.tanh`",
    "softplus": "`F.softplus`, `jax.nn.softplus`, `tf.nn.softplus`",
    "softsign": "`F.softsign`, `jax.nn.soft_sign`, `tf.nn.softsign`",
    "gelu": "`F.gelu`, `jax.nn.gelu(approximate=False)`, `tf.nn.gelu`",
    "gelu_tanh": "`F.gelu(approximate='tanh')`, `jax.nn.gelu`",
    "quick_gelu": "`x * sigmoid(1.702 * x)`, three calls",
    "silu": "`F.silu`, `jax.nn.silu`, `tf.nn.silu`",
    "hard_swish": "`F.hardswish`, `jax.nn.hard_swish`",
    "mish": "`F.mish`, `jax.nn.mish`",
    "swiglu": "`F.silu(x) * y`, two calls",
    "geglu": "`F.gelu(x) * y`, two calls",
    "reglu": "`F.relu(x) * y`, two calls",
    "dropout": "`F.dropout` with a seed of one's own",
    "bias_dropout_add": "`residual + F.dropout(x + bias)`, three calls",
    "residual_scale": "`residual + scale * x`, two calls",
    "mse": "`F.mse_loss`, `optax.squared_error`",
    "l1": "`F.l1_loss`",
    "huber": "`F.huber_loss`, `optax.huber_loss`",
    "bce_with_logits": "`F.binary_cross_entropy_with_logits`, `optax.sigmoid_binary_cross_entropy`, "
    "`tf.nn.sigmoid_cross_entropy_with_logits`",
    "focal": "`torchvision.ops.sigmoid_focal_loss`, ten calls",
    "kl_div": "`F.kl_div`",
    "soft_cross_entropy": "`F.cross_entropy` with probabilities, `optax.softmax_cross_entropy`, "
    "`tf.nn.softmax_cross_entropy_with_logits`",
    "cosine_similarity": "`F.cosine_similarity`",
    "sgd_step": "`torch.optim.SGD` for one tensor",
    "adamw_step": "`torch.optim.AdamW` for one tensor, `optax.adamw`",
    "adam_step": "`torch.optim.Adam` for one tensor, `optax.adam`",
    "lion_step": "`optax.lion` for one tensor",
    "adafactor_step": "`torch.optim.Adafactor` for one tensor",
    "sgd_step_list": "`torch.optim.SGD(fused=True)`",
    "adamw_step_list": "`torch.optim.AdamW(fused=True)`",
    "adam_step_list": "`torch.optim.Adam(fused=True)`",
    "lion_step_list": "`optax.lion`",
    "clip_grad_norm": "`torch.nn.utils.clip_grad_norm_`, `optax.clip_by_global_norm`",
    "fake_quantize": "`torch.fake_quantize_per_tensor_affine`, also per channel",
    "quantize": "`torch.quantize_per_tensor`, with the integers themselves as result",
    "dequantize": "`(q - zero) * scale` in floating point",
}
# Why operators under a title have kernels: every title that has such operators needs a reason.
REASONS = {
    "Softmax": "A formula with the same contract is among the kernels and takes the lengths where it is faster. The "
    "kernels by hand have the mask and `causal`, and are faster on rows of f32 and on some odd lengths",
    "Normalisation": "`layer_norm` has a formula among its kernels, for the lengths where that is faster. "
    "`batch_norm` makes both statistics in one pass over memory and updates the running ones; a formula takes two",
    "Losses": "An index picks one element of a row, and loss and gradient come out of one pass. "
    "`linear_cross_entropy` never has all logits in memory",
    "Reductions": "`sum` deals its elements out to threads, warps, blocks or clusters by length and strides; "
    "`mean` takes its CPU kernels too",
    "Sorting": "A formula computes each element from its own place; sorting moves elements by their values",
    "Cumulative": "A formula's `scan` has a thread for each row; these share a row out among threads",
    "Counting": "Elements go to places that their values tell",
    "Rotary embedding": "A thread moves 16 bytes of each half, and pairs may lie side by side as well. As a formula "
    "it is one line: `x * cos + rotate_half(x) * sin`",
    "Moving data": "Nothing is computed. The time is that of a copy, so the kernels choose by shape in which order "
    "memory is walked",
    "Looking up": "Elements come from, and gradients go to, places that other tensors tell, in an order that does not "
    "change",
    "Products": "An element of a product is a sum over a dimension that two matrices share. Tensor cores and tiles in "
    "shared memory are what makes it fast",
    "Attention": "Two products with a softmax between them, of which the scores never are whole in memory",
}
HEAD = """\
# The operators

<!-- made by tools/operators_doc.py --write -->

Every row of the table, as `tenon ops NAME` shows it. The contract says what goes in and what comes out; its language is
in [contract.md](contract.md). Each operator is `tn.NAME` in PyTorch, JAX, TensorFlow and NumPy, `tn_NAME` in C, and a
node of the domain `tenon` in ONNX Runtime. Gradients are operators themselves.

Of {count} operators {formulas} are formulas: one text, from which kernels and gradient are derived. The other
{kernels} have kernels of their own, and {gradients} of these are gradients; a table says
[why](#why-some-have-kernels).

Times are in microseconds on one H200, at the shape that is named. Beside ours are PyTorch eager and `torch.compile`, in
the same run ({link}). [speed.md](speed.md) has more shapes and the CPU.
"""


def table() -> list[dict[str, Any]]:
    printed = subprocess.run([ROOT / "build" / "tenon", "ops", "--json"], check=True, capture_output=True, text=True)
    rows: list[dict[str, Any]] = json.loads(printed.stdout)
    return rows


def families(names: Iterable[str]) -> dict[str, str]:
    """The title under which each operator stands, by the file that has its row."""
    texts = {path: path.read_text() for path in sorted((ROOT / "src" / "ops").rglob("*.c"))}
    found = {}
    for name in names:
        begin = r"(?:[A-Z]{3,}\(\s*|\.signature = |[A-Z]+\()"
        row = re.compile(rf'{begin}(?:"{name}(?:<.*>)?\(.*:|{name}, |[A-Z]+\({name},)')
        row = re.compile(
            rf'(?:[A-Z]{{3,}}\(\s*|\.signature = |[A-Z]+\()(?:"{name}(?:<[^>]*>)?\(.*:|{name}, |[A-Z]+\({name},)'
        )
        path = next(path for path, text in texts.items() if row.search(text))
        found[name] = FAMILIES.get(path.stem) or FAMILIES[path.parent.name]
    return found


def results() -> tuple[str, dict[str, dict[str, Any]]]:
    """A link to the newest run on a GPU; the rows of each operator in bf16, or in f32, by pass."""
    path = max((ROOT / "bench" / "results").glob("operators-cuda-*.json"))
    rows: dict[str, dict[str, Any]] = {}
    for row in json.loads(path.read_text())["rows"]:
        passes = rows.setdefault(row["op"], {})
        if row["type"] == "bf16" or row["pass"] not in passes:
            passes[row["pass"]] = row
    return f"[{path.name}](../bench/results/{path.name})", rows


def contract(signature: str) -> str:
    """On one line where it fits, else with a parameter on each."""
    if len(signature) <= 110:
        return signature
    depth, parts, start = 0, [], signature.index("(") + 1
    begin = start
    for i in range(start, len(signature)):
        depth += (signature[i] in "([") - (signature[i] in ")]")
        if depth < 0 or (signature[i] == "," and depth == 0):
            parts.append(signature[begin:i].strip())
            begin = i + 1
        if depth < 0:
            return f"{signature[:start]}\n    " + ",\n    ".join(parts) + f"){signature[begin:]}"
    raise ValueError(signature)


def types(row: dict[str, Any]) -> str:
    return "; ".join(f"{one['name']}: {', '.join(one['of'])}" for one in row["types"]) or "as in the contract"


def gradient(row: dict[str, Any], names: set[str]) -> str:
    if not row["grad"]:
        return "none"
    if any(param.get("inplace") for param in row["params"]):
        return "none: it updates in place"
    if isinstance(row["grad"], str):
        return "derived from the formula"
    used = dict.fromkeys(s["op"] for s in row["grad"]["statements"])
    return ", ".join(f"[{name}](#{name})" if name in names else f"`{name}`" for name in used)


def speed(passes: dict[str, Any]) -> str:
    told = []
    for name, row in passes.items():
        peers = [f"{row[f'{side}_us']:.0f} {text}" for side, text in PEERS if row.get(f"{side}_us")]
        told.append(f"{name} {row['tenon_us']:.0f} µs ({', '.join(peers)})")
    some = next(iter(passes.values()))
    return f"{some['shape']}, {some['type']}: " + "; ".join(told)


PEERS = (("eager", "eager"), ("compile", "compiled"))


def section(row: dict[str, Any], names: set[str], passes: dict[str, Any] | None) -> list[str]:
    name = row["name"]
    lines = [f"### {name}", "", row["doc"], "", "```", contract(row["signature"]), "```", ""]
    if row["formula"]:
        formula = "\n".join(part.strip() for part in row["formula"].split(";"))
        lines += ["```", formula, "```", ""]
    lines.append(f"- types: {types(row)}")
    lines.append(f"- gradient: {gradient(row, names)}")
    if name in IN_PLACE_OF:
        lines.append(f"- in place of: {IN_PLACE_OF[name]}")
    if passes:
        lines.append(f"- speed: {speed(passes)}")
    return [*lines, ""]


def kernels_told(rows: list[dict[str, Any]], under: dict[str, str]) -> list[str]:
    """By title: how many operators are a formula, how many have kernels, and why."""
    lines = ["## Why some have kernels", "", "| | formulas | with kernels | why |", "|---|---|---|---|"]
    for title in dict.fromkeys(under[row["name"]] for row in rows):
        mine = [row for row in rows if under[row["name"]] == title]
        own = [row for row in mine if not row["formula"]]
        both = sum(any(kernel["name"] == "formula" for kernel in row["kernels"]) for row in own)
        count = f"{len(own)}, {both} of them with a formula among them" if both else str(len(own))
        lines.append(f"| {title} | {len(mine) - len(own)} | {count} | {REASONS[title] if own else ''} |")
    if extra := REASONS.keys() - {under[row["name"]] for row in rows if not row["formula"]}:
        raise ValueError(f"reasons for titles without kernels: {sorted(extra)}")
    return [*lines, ""]


def page() -> str:
    rows = table()
    names = {row["name"] for row in rows}
    under = families(names)
    link, measured = results()
    own = [row["name"] for row in rows if not row["formula"]]
    counts = {
        "count": len(rows),
        "formulas": len(rows) - len(own),
        "kernels": len(own),
        "gradients": sum("_grad" in name for name in own),
    }
    lines = [HEAD.format(link=link, **counts)]
    for title in dict.fromkeys(under[row["name"]] for row in rows):
        mine = [row for row in rows if under[row["name"]] == title]
        lines += [f"**{title}**: " + ", ".join(f"[{row['name']}](#{row['name']})" for row in mine), ""]
    lines += kernels_told(rows, under)
    for title in dict.fromkeys(under[row["name"]] for row in rows):
        lines += [f"## {title}", ""]
        for row in (row for row in rows if under[row["name"]] == title):
            lines += section(row, names, measured.get(row["name"]))
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> int:
    text = page()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text)
        print(f"written: {PAGE.relative_to(ROOT)}")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
