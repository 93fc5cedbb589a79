"""What Tenon has of each framework, into docs/pytorch.md, jax.md, tensorflow.md, numpy.md and onnxruntime.md:

    python tools/coverage_doc.py [--write] [tensorflow.md …]

Lists every function, module and optimiser of the frameworks that this Python has, in four groups: ours, a word of
formulas, not yet, and left to the framework. Ours are looked up in Tenon, words are tried in a formula, what is left to
the framework is chosen by the patterns below, and the rest is not yet there. A test compares where the framework is
installed in the version that the page names.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT / "python") not in sys.path:
    sys.path.insert(0, str(ROOT / "python"))
BEGIN, END = "<!-- coverage: tools/coverage_doc.py --write -->\n", "<!-- end of coverage -->\n"

SIGNS = {
    "equal": "==",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "logical_and": "and",
    "logical_not": "not",
    "logical_or": "or",
    "negative": "-",
    "not_equal": "!=",
}

# What NumPy calls the functions, and with it the other frameworks.
ARITHMETIC = {
    "absolute": "abs",
    "clip": "clamp",
    "divide": "div",
    "multiply": "mul",
    "power": "pow",
    "subtract": "sub",
    "true_divide": "div",
    "truediv": "div",
}
SWISH = {"hard_silu": "hard_swish", "swish": "silu"}

# Why the framework keeps a function, and the names that are meant, in lower case, * for anything; the first that fits
# counts.
Reasons = Mapping[str, str]

LEFT: Reasons = {
    "matrix products, convolutions, attention, recurrence": """
        *attention* *conv1d* *conv2d* *conv3d* *convtranspose* *convolution* *einsum* *gru* *lstm* *matmul* *rnn*
        *transformer* atrous* bidirectional bilinear causalconv* conv conv_* convinteger convlocal deformconv dense* dft
        dot dot_* fp8* gemm get_scaled* grouped_mm lazyconv* lazylinear linear lineargeneral lora* mgucell nanoofp8*
        qlinear* scaled_* simplecell stft
    """,
    "pooling, images, moving data": """
        *crop *crop* *grid* *hash* *lookup* *pad *pad?d *pool* *shuffle *spectrogram *upsampl* *window augmix
        autocontrast bitcast cast castlike categoryencoding centercrop* col2im compress concat* constant* contrast*
        cutmix depth_to_space depthtospace dilation2d discretization embed embedding embedding_bag embeddingbag
        equalization erosion2d expand eyelike flatten fold gather* imagedecoder interpolate maxnumbounding* maxroi*
        melweight* mixup nonmaxs* nonzero one_hot onehot pad permute randaugment random* range regex* repeatvector
        rescaling reshape resiz* reversesequence reversibleembedding roialign safe_embed* scatter* shape size slice
        solarization space_to_* spacetodepth split squeeze string* tensorscatter textvect* tfidf* tile top_k topk
        transpose trilu unflatten unfold unique unsqueeze with_space* zeropadding*
    """,
    "containers and helpers": """
        *layer *wrapper activityreg* container dataparallel deserialize dict experimental get identity if initializers
        lambda lazy* list loop loss lossscale* masking module* multioptimizer optimizer* optional* parameter* pipeline
        scan sequence* sequential serialize special spectralnorm* splittoseq* syncbatchnorm timedistributed weightnorm
    """,
}


@dataclass
class Space:
    """A module of a framework: the names that users see, and what ours are called where the name differs."""

    title: str
    names: list[str]
    ours: Mapping[str, str] = field(default_factory=dict)
    left: Reasons = field(default_factory=dict)  # before those above
    has_words: bool = False  # functions that may be words of formulas
    only_here: bool = False  # lists what Tenon has, and not the rest of a large module


@dataclass(frozen=True)
class Page:
    file: str
    framework: str  # as people call it
    packages: tuple[str, ...]  # the versions that are named; the first ones are needed
    tenon: str  # our module
    spaces: Callable[[], list[Space]]

    @property
    def path(self) -> Path:
        return ROOT / "docs" / self.file

    def is_installed(self) -> bool:
        return all(find_spec(name) for name in self.packages)

    def compared_with(self) -> str:
        return ", ".join(f"{NAMES[name]} {importlib.import_module(name).__version__}" for name in self.packages)


NAMES = {
    "torch": "PyTorch",
    "jax": "JAX",
    "flax": "Flax",
    "optax": "Optax",
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "numpy": "NumPy",
    "onnx": "onnx",
}


def classes(module: Any, of: type) -> list[str]:
    return [name for name, what in vars(module).items() if inspect.isclass(what) and issubclass(what, of)]


def functions(module: Any) -> list[str]:
    """Functions in lower case; not those that only differ by an underscore behind, which work in place."""
    names = [name for name in dir(module) if name.islower() and name[0] != "_" and callable(getattr(module, name))]
    return [name for name in names if not (name.endswith("_") and name[:-1] in names)]


def of_torch() -> list[Space]:
    torch = importlib.import_module("torch")
    helpers = r"assert_.*|.*_dispatch|.*torch_function.*|native_.*|.*_with_indices"
    functional = [name for name in functions(torch.nn.functional) if not re.fullmatch(helpers, name)]
    named = {
        "binary_cross_entropy_with_logits": "bce_with_logits",
        "hardsigmoid": "hard_sigmoid",
        "hardswish": "hard_swish",
        "huber_loss": "huber",
        "l1_loss": "l1",
        "logsigmoid": "log_sigmoid",
        "mse_loss": "mse",
        "scaled_dot_product_attention": "scaled_dot_product_attention",
    }
    element_wise = [
        name for name in functions(torch) if name not in functional and name not in ("rand", "select", "var")
    ]
    utils = [name for name in dir(torch.nn.utils) if name.startswith("clip_grad") and name.endswith("_")]
    return [
        Space("`torch.nn.functional`", functional, named, has_words=True),
        Space("`torch`", element_wise, {"clone": "identity", "where": "select"}, has_words=True, only_here=True),
        Space("`torch.nn`", [n for n in classes(torch.nn, torch.nn.Module) if n != "Module"], prefix("nn", torch.nn)),
        Space("`torch.optim`", classes(torch.optim, torch.optim.Optimizer), prefix("optim", torch.optim)),
        Space("`torch.nn.utils`", utils, {"clip_grad_norm_": "optim.clip_grad_norm_"}),
    ]


def prefix(under: str, module: Any) -> dict[str, str]:
    """Names of a framework's module that are ours in a module of the same name."""
    ours = getattr(importlib.import_module("tenon.torch"), under)
    return {name: f"{under}.{name}" for name in dir(module) if name in dir(ours)}


def of_jax() -> list[Space]:
    jax, optax, nnx, linen = (importlib.import_module(n) for n in ("jax", "optax", "flax.nnx", "flax.linen"))
    numpy = importlib.import_module("jax.numpy")
    # A function of ours does what the module does; for nnx there are modules, too.
    modules = {
        "BatchNorm": "batch_norm",
        "Dropout": "dropout",
        "Embed": "embedding",
        "GroupNorm": "group_norm",
        "InstanceNorm": "instance_norm",
        "LayerNorm": "layer_norm",
        "PReLU": "prelu",
        "RMSNorm": "rms_norm",
    }
    ours = importlib.import_module("tenon.jax.nnx").__all__
    own = {name: f"nnx.{name}" if name in ours else made for name, made in modules.items()}
    losses = {
        "cosine_similarity": "cosine_similarity",
        "huber_loss": "huber",
        "kl_divergence": "kl_div",
        "sigmoid_binary_cross_entropy": "bce_with_logits",
        "sigmoid_focal_loss": "focal",
        "softmax_cross_entropy": "soft_cross_entropy",
        "softmax_cross_entropy_with_integer_labels": "cross_entropy",
        "squared_error": "mse",
    }
    alias = [name for name in functions(optax) if getattr(optax, name).__module__ == "optax._src.alias"]
    clips = [name for name in functions(optax) if "clip" in name]
    steps = {"adam": "adam_step", "adamw": "adamw_step", "lion": "lion_step", "sgd": "sgd_step"}
    element_wise = [name for name in functions(numpy) if name not in ("bool", "identity")]
    return [
        Space("`jax.nn`", functions(jax.nn), {**SWISH, "soft_sign": "softsign"}, has_words=True),
        Space(
            "`jax.numpy`",
            [n for n in element_wise if n not in ("repeat", "select")],
            {**ARITHMETIC, "tile": "repeat", "where": "select"},
            has_words=True,
            only_here=True,
        ),
        Space("`flax.nnx`", [n for n in classes(nnx, nnx.Module) if n != "Module"], own),
        Space("`flax.linen`", [n for n in classes(linen, linen.Module) if n != "Module"], modules),
        Space("`optax`, optimisers", alias, steps),
        Space("`optax`, clipping", clips, {"clip_by_global_norm": "clip_grad_norm"}),
        Space("`optax.losses`", functions(optax.losses), losses),
    ]


def of_tensorflow() -> list[Space]:
    tf, keras = importlib.import_module("tensorflow"), importlib.import_module("keras")
    layers = importlib.import_module("tenon.tensorflow.layers")
    nn = {
        "batch_normalization": "batch_norm_infer",
        "bias_add": "bias_act",
        "sigmoid_cross_entropy_with_logits": "bce_with_logits",
        "softmax_cross_entropy_with_logits": "soft_cross_entropy",
        "sparse_softmax_cross_entropy_with_logits": "cross_entropy",
        **SWISH,
    }
    reduced = {
        f"reduce_{name}": name for name in ("sum", "max", "mean", "min", "logsumexp", "prod", "std", "any", "all")
    }
    reduced["reduce_variance"] = "var"
    math = {**ARITHMETIC, **reduced, **SIGNS, "floormod": "%"}
    activations = {**SWISH, "exponential": "exp", "linear": "identity"}
    own = {name: f"layers.{name}" for name in layers.__all__}
    keras_layers = {**own, **dict.fromkeys(("ELU", "LeakyReLU", "ReLU"), "layers.Activation"), "PReLU": "prelu"}
    losses = {
        **{name: made for name, made in own.items() if hasattr(keras.losses, name)},
        "BinaryCrossentropy": "bce_with_logits",
        "BinaryFocalCrossentropy": "focal",
        "Huber": "huber",
        "KLDivergence": "kl_div",
        "MeanAbsoluteError": "l1",
        "MeanSquaredError": "mse",
    }
    sampling = {
        "sampling, beams, labels, statistics": "*hits *moments *sampled* *sampler *statistics approx_* collapse* "
        "compute_* ctc_* in_top_k isotonic* nce_loss scale_reg* zero_fraction"
    }
    integers = {
        "integers, sorting, complex numbers, segments": "*segment* angle approx_* bincount confusion* "
        "conj cum* imag in_top_k invert_* is_non* is_strict* real sobol* top_k zero_fraction"
    }
    return [
        Space("`tf.nn`", functions(tf.nn), nn, sampling, has_words=True),
        Space("`tf.math`", functions(tf.math), math, integers, has_words=True),
        Space("`keras.activations`", functions(keras.activations), activations, has_words=True),
        Space("`keras.layers`", classes(keras.layers, keras.layers.Layer), keras_layers),
        Space("`keras.losses`", classes(keras.losses, keras.losses.Loss), losses),
        Space(
            "`keras.optimizers`",
            classes(keras.optimizers, keras.optimizers.Optimizer),
            {"Adam": "adam_step", "AdamW": "adamw_step", "Lion": "lion_step", "SGD": "sgd_step"},
        ),
    ]


def of_numpy() -> list[Space]:
    numpy = importlib.import_module("numpy")
    element_wise = [name for name, what in vars(numpy).items() if isinstance(what, numpy.ufunc)]
    same = {**ARITHMETIC, **SIGNS, "remainder": "%", "mod": "%"}
    reduced = "all any argmax argmin average cumprod cumsum max mean median min nanmax nanmean nanmin nansum norm prod"
    reductions = [*reduced.split(), "ptp", "quantile", "std", "sum", "var"]
    others = {
        "integers, bits, matrices, parts of numbers": "*dot *mat* *shift *vec* bitwise* conj* divmod float_power "
        "frexp gcd invert isnat lcm ldexp modf nextafter signbit spacing"
    }
    known = [name for name in reductions if hasattr(numpy, name)]
    return [
        Space("element-wise functions (ufuncs)", element_wise, same, others, has_words=True),
        Space(
            "reductions",
            known,
            {},
            {"sorting, counting": "argpartition argsort median quantile"},
            has_words=True,
        ),
        Space("others", ["clip", "where"], ARITHMETIC, has_words=True),
    ]


def of_onnx() -> list[Space]:
    onnx = importlib.import_module("onnx")
    schemas = onnx.defs.get_all_schemas()
    names = sorted({schema.name for schema in schemas if schema.domain == "" and not schema.deprecated})
    different = {
        "BatchNormalization": "batch_norm_infer",
        "Clip": "clamp",
        "DequantizeLinear": "dequantize",
        "Gather": "index_select",
        "GatherElements": "gather",
        "LayerNormalization": "layer_norm",
        "QuantizeLinear": "quantize",
        "RMSNormalization": "rms_norm",
        "ReduceSum": "sum",
        "ReduceMean": "mean",
        "ReduceMax": "max",
        "ReduceMin": "min",
        "ReduceProd": "prod",
        "ReduceL2": "norm",
        "ReduceLogSumExp": "logsumexp",
        "LogSoftmax": "log_softmax",
        "GroupNormalization": "group_norm",
        "InstanceNormalization": "instance_norm",
        "SoftmaxCrossEntropyLoss": "cross_entropy",
        "SwiGLU": "swiglu",
        "Swish": "silu",
        "PRelu": "prelu",
        "HardSigmoid": "hard_sigmoid",
        "HardSwish": "hard_swish",
        "LeakyRelu": "leaky_relu",
    }
    same = {name: name.lower() for name in names if name.lower() in table() and name != "Sum"}  # which adds its inputs
    words = {
        "Cos": "cos",
        "Erf": "erf",
        "Max": "maximum",
        "Min": "minimum",
        "Round": "round",
        "Sin": "sin",
        "ReduceMax": "max",
        "ReduceMean": "mean",
        "ReduceMin": "min",
        "ReduceLogSumExp": "logsumexp",
        "Where": "where",
        "And": "and",
        "Or": "or",
        "Not": "not",
        "Equal": "==",
        "Greater": ">",
        "Less": "<",
        "GreaterOrEqual": ">=",
        "LessOrEqual": "<=",
        "Neg": "-",
    }
    reasons = {
        "random numbers": "bernoulli multinomial random*",
        "integers and truth values": "and arg* bit* cum* det hardmax isinf isnan not or xor",
    }
    return [Space("the operators of ONNX", names, {**words, **same, **different}, reasons)]


def table() -> set[str]:
    return set(importlib.import_module("tenon.numpy").ops())


@cache
def is_word(name: str) -> bool:
    """Whether a formula may call it, or has this sign."""
    fuse = importlib.import_module("tenon.numpy").fuse
    calls = [f"{name}({arguments})" for arguments in ("x", "x, y", "x, y, z")] if name.isidentifier() else []
    for formula in (*calls, f"x {name} y", f"{name} x"):
        try:
            fuse(formula)
        except ValueError:
            continue
        return True
    return False


def find(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module


def reason_of(name: str, space: Space) -> str | None:
    for why, names in (*space.left.items(), *LEFT.items()):
        if any(fnmatchcase(name.lower(), pattern) for pattern in names.split()):
            return why
    return None


def groups(space: Space, page: Page) -> Iterator[tuple[str, list[str]]]:
    """The rows of a module: what the group is, and the names in it."""
    tenon = importlib.import_module(page.tenon)
    ours: list[str] = []
    words: list[str] = []
    later: list[str] = []
    left: dict[str, list[str]] = {}
    for name in sorted(set(space.names), key=str.lower):
        other = space.ours.get(name)
        if other is None and name in table() and callable(getattr(tenon, name, None)):
            ours.append(f"`{name}`")
        elif other is not None and (find(tenon, other) or other in table()):
            ours.append(f"`{name}`" if other.rpartition(".")[2] == name else f"`{name}` as `{other}`")
        elif other is not None and is_word(other):
            words.append(f"`{name}` as `{other}`")
        elif other is not None:
            raise LookupError(f"{space.title}.{name}: {page.tenon} has no {other}")
        elif space.has_words and is_word(name):
            words.append(f"`{name}`")
        elif (why := reason_of(name, space)) is not None:
            left.setdefault(why, []).append(f"`{name}`")
        else:
            later.append(f"`{name}`")
    yield "**ours**", ours
    yield "in formulas", words
    if not space.only_here:
        yield "not yet", later
        for why in [*space.left, *LEFT]:
            yield f"left to {page.framework}: {why}", left.get(why, [])


def together(names: list[str]) -> list[str]:
    """`conv1d`, `conv2d`, `conv3d` as `conv{1,2,3}d`."""
    found: dict[str, list[str]] = {}
    for name in names:
        stem = re.sub(r"(?<=\D)[123](?=[dD])", "#", name)
        found.setdefault(stem, []).extend(re.findall(r"[123](?=[dD])", name) if stem != name else [])
    said = []
    for stem, digits in found.items():
        joined = ",".join(digits)
        said.append(stem.replace("#", f"{{{joined}}}" if len(digits) > 1 else joined))
    return said


def coverage(page: Page) -> str:
    lines = ["", f"Compared with {page.compared_with()}.", ""]
    for space in page.spaces():
        lines += [f"| {space.title} | |", "|---|---|"]
        lines += [f"| {title} | {', '.join(together(names))} |" for title, names in groups(space, page) if names]
        lines.append("")
    return "\n".join(lines) + "\n"


PAGES = (
    Page("pytorch.md", "PyTorch", ("torch",), "tenon.torch", of_torch),
    Page("jax.md", "JAX", ("jax", "flax", "optax"), "tenon.jax", of_jax),
    Page("tensorflow.md", "TensorFlow", ("tensorflow", "keras"), "tenon.tensorflow", of_tensorflow),
    Page("numpy.md", "NumPy", ("numpy",), "tenon.numpy", of_numpy),
    Page("onnxruntime.md", "ONNX Runtime", ("onnx",), "tenon.onnxruntime", of_onnx),
)


def split(text: str) -> tuple[str, str, str]:
    """A page up to the first comment, between the two, and from the second on."""
    head, _, rest = text.partition(BEGIN)
    middle, _, tail = rest.partition(END)
    return head + BEGIN, middle, END + tail


def write(page: Page) -> None:
    head, _, tail = split(page.path.read_text())
    page.path.write_text(head + coverage(page) + tail)


def is_current(page: Page) -> bool | None:
    """Whether the page has what there is; None where it is about another version than the one that is installed."""
    stored = split(page.path.read_text())[1]
    if not page.is_installed() or f"Compared with {page.compared_with()}.\n" not in stored:
        return None
    return stored == coverage(page)


def main() -> int:
    wanted = [given for given in sys.argv[1:] if given != "--write"]
    for page in PAGES:
        if wanted and page.file not in wanted:
            continue
        if not page.is_installed():
            print(f"left out: {page.file} needs {', '.join(page.packages)}", file=sys.stderr)
            continue
        if "--write" in sys.argv[1:]:
            write(page)
            print(f"written: {page.path.relative_to(ROOT)}")
        else:
            print(coverage(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
