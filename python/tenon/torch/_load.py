"""``load`` and ``load_inline`` in the place of torch.utils.cpp_extension's, for kernels:

    from tenon.torch import load_inline

    module = load_inline("swish", cpp_sources="torch::Tensor swish(torch::Tensor x);", cuda_sources=text,
                         functions=["swish"])
    y = module.swish(x)

NVRTC compiles the ``__global__`` functions, in a fraction of a second and without nvcc. The C++ around them is read,
not compiled: which tensors and numbers a function hands to its kernels, what it allocates and what it returns. That
works where it is a launcher and nothing else. Whatever else it does is named in an error, with what to do instead.

Where the formula of a kernel can be read from its text, there is a gradient too, and the function works on the CPU.
"""

from __future__ import annotations

import ast
import json
import operator
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import tenon
from tenon._lib import lib

__all__ = ["load", "load_inline"]

# Those that mean the same to NVRTC.
_KEPT_FLAGS = ("-D", "-U", "-I", "-std", "--std", "-G", "-lineinfo", "-use_fast_math", "--use_fast_math", "-fmad")
_OTHER_FLAGS = ("--fmad", "-ftz", "--ftz", "-maxrregcount", "--maxrregcount")


def _names(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else [*(given or ())]


# ---- reading C++ ---------------------------------------------------------------------------------------------------


def _without_comments(text: str) -> str:
    """Comments are blank, strings stay."""
    pattern = r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/'
    return re.sub(pattern, lambda m: m[0] if m[0][0] == '"' else " ", text, flags=re.DOTALL)


def _closing(text: str, at: int) -> int:
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place
    return len(text)


def _split(text: str, by: str = ",") -> list[str]:
    """Pieces between commas that are inside of no bracket."""
    pieces, depth, begin = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == by and depth == 0:
            pieces.append(text[begin:place].strip())
            begin = place + 1
    return [piece for piece in [*pieces, text[begin:].strip()] if piece]


@dataclass
class _Function:
    """A function of C++ with a body."""

    name: str
    params: list[str]  # their names
    body: str


def _find_function(text: str, name: str) -> _Function | None:
    for found in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        close = _closing(text, found.end() - 1)
        rest = text[close + 1 :].lstrip()
        if not rest.startswith("{"):
            continue
        begin = text.index("{", close)
        params = [re.split(r"=", piece)[0].strip() for piece in _split(text[found.end() : close])]
        names = [words[-1] for piece in params if (words := re.findall(r"\w+", piece))]
        return _Function(name, names, text[begin + 1 : _closing(text, begin)])
    return None


# ---- what a launcher does ------------------------------------------------------------------------------------------

_TYPES = (
    r"(?:const\s+)?(?:auto|(?:torch|at)::Tensor|unsigned(?:\s+int)?|(?:std::)?u?int(?:\d+_t)?|long(?:\s+long)?|size_t|"
    r"float|double|bool)"
)
_QUIET = (
    r"TORCH_CHECK|AT_ASSERT\w*|TORCH_INTERNAL_ASSERT|CHECK_\w+|C10_CUDA_\w+|AT_CUDA_CHECK|cudaGetLastError|CUDA_CHECK|"
    r"cudaPeekAtLastError|gpuErrchk|cudaDeviceSynchronize"
)
_SET = re.compile(rf"^(?:{_TYPES})\s*[&*]?\s*(\w+)\s*=\s*(.*)$", re.DOTALL)
_STREAM = re.compile(r"^(?:const\s+)?(?:auto|cudaStream_t|at::cuda::\w+|c10::cuda::\w+)\s+\w+")
_MADE_LIKE = re.compile(r"^(?:torch|at)::(empty|zeros|ones)_like\((\w+)[^()]*\)$")
_ALIAS = re.compile(r"^(\w+)(\.contiguous\(\)|\.clone\(\))?$")
_DATA = re.compile(r"\b(\w+)(?:\.contiguous\(\))?(?:\.|->)(?:const_|mutable_)?data(?:_ptr)?\b")


def _tensor(text: str) -> str:
    """Whose data a kernel is given: x of `x.data_ptr<float>()`, and of `x` where launchers take pointers."""
    found = _DATA.search(text)
    return found[1] if found else text


def _statements(body: str) -> list[str]:
    """One after the other; what AT_DISPATCH… and braces hold counts as part of the function."""
    flat = re.sub(r"AT_DISPATCH_\w+\s*\(.*?\[&\]\s*(?:\(\s*\))?\s*\{", ";", body, flags=re.DOTALL)
    flat = re.sub(r"[{}]\s*\)*\s*\)?\s*;", ";", flat)
    flat = re.sub(r"\bif\s*constexpr\s*\(.*?\)", ";", flat)
    return [" ".join(piece.split()) for piece in _split_flat(flat)]


def _split_flat(text: str) -> list[str]:
    pieces, depth, begin = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "(") - (char in ")")
        if char == ";" and depth <= 0:
            pieces.append(text[begin:place].strip(" \n\t{}"))
            begin, depth = place + 1, 0
    return [piece for piece in [*pieces, text[begin:].strip(" \n\t{})")] if piece]


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def _number(text: str, values: Mapping[str, Any]) -> Any:
    """A number that C++ writes with numbers, the function's parameters and + - * /."""
    plain = re.sub(r"\b(?:static_cast<[\w:\s]+>|float|double|int)\s*(?=\()|\((?:float|double|int|scalar_t)\)", "", text)
    plain = re.sub(r"(?<=[\d.])[fFlLuU]+\b", "", plain).replace("true", "True").replace("false", "False")

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in values:
            return values[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.operand))
        raise ValueError(text)

    return value(ast.parse(plain.strip(), mode="eval").body)


@dataclass
class _Launch:
    """A kernel that a launcher starts, and what it hands over."""

    kernel: tenon.Kernel
    given: dict[str, str]  # what each parameter gets, by its name: text of C++
    roles: dict[str, str]


@dataclass
class _Launcher:
    """A function of C++ that starts kernels, done in Python."""

    module: str
    function: _Function
    launches: list[_Launch]
    calls: str = ""  # the function that it calls, which starts the kernels
    settings: list[tuple[str, str]] = field(default_factory=list)  # local = expression
    returned: list[str] = field(default_factory=list)

    def read(self) -> None:
        for statement in _statements(self.function.body):
            found = _SET.match(statement)
            if statement.startswith("return"):
                self.returned = _split(statement.removeprefix("return").strip().strip("{}"))
            elif found:
                self.settings.append((found[1], found[2]))
            elif not self.is_of_a_launcher(statement):
                self.refuse(statement)
        for name, expression in self.settings:
            if not self.is_understood(name, expression):
                self.refuse(f"{name} = {expression}")

    def is_of_a_launcher(self, statement: str) -> bool:
        """It starts a kernel, or calls what does; it checks; it chooses a device, a stream or a grid."""
        if "<<<" in statement or (self.calls and re.match(rf"^{self.calls}\s*\(", statement)):
            return True
        return bool(re.match(rf"^(?:{_QUIET})\b|^(?:const\s+)?(?:dim3|using)\b", statement) or _STREAM.match(statement))

    def refuse(self, what: str) -> None:
        raise NotImplementedError(
            f"{self.module}: {self.function.name} does more than start kernels: `{what}`. Do that in Python, and call "
            f"the kernel there: tenon.kernel(…), or `tenon new {self.module} --from FILE.cu` for a project"
        )

    def tensors(self) -> set[str]:
        """The names of C++ that kernels are given the data of."""
        pairs = [(launch.roles[p], text) for launch in self.launches for p, text in launch.given.items()]
        return {_tensor(text) for role, text in pairs if role in ("input", "output", "updated")}

    def is_understood(self, name: str, expression: str) -> bool:
        """A local that no kernel is given the data of is a size, or nothing to us."""
        if name in self.tensors() or name in self.returned:
            wide = re.match(r"^(?:torch|at)::(?:empty|zeros|ones|full)\(", expression)
            return bool(_MADE_LIKE.match(expression) or _ALIAS.match(expression) or (wide and self.is_output(name)))
        return not re.search(
            r"(?:torch|at)::(?!empty|zeros|cuda)\w+\(|\.(?:matmul|mm|sum|mean|view|reshape)\(", expression
        )

    def is_output(self, name: str) -> bool:
        """Tenon allocates it, and knows its shape."""
        for launch in self.launches:
            for param, text in launch.given.items():
                if launch.roles[param] == "output" and _tensor(text) == name:
                    return True
        return False

    def __call__(self, *args: Any) -> Any:
        names = self.function.params
        if len(args) != len(names):
            raise TypeError(
                f"{self.function.name}() takes {len(names)} arguments ({', '.join(names)}), not {len(args)}"
            )
        values: dict[str, Any] = dict(zip(names, args, strict=True))
        for name, expression in self.settings:
            self.set(values, name, expression)
        for launch in self.launches:
            self.launch(values, launch)
        found = [values[name] for name in self.returned]
        return None if not found else found[0] if len(found) == 1 else found

    def set(self, values: dict[str, Any], name: str, expression: str) -> None:
        made, alias = _MADE_LIKE.match(expression), _ALIAS.match(expression)
        if made and not self.is_output(name):
            values[name] = getattr(torch, f"{made[1]}_like")(values[made[2]])
        elif alias and isinstance(values.get(alias[1]), Tensor):
            values[name] = values[alias[1]].clone() if alias[2] == ".clone()" else values[alias[1]]
        elif name not in self.tensors():
            try:
                values[name] = _number(expression, values)
            except (ValueError, SyntaxError):
                return  # a size, which Tenon computes itself

    def launch(self, values: dict[str, Any], launch: _Launch) -> None:
        arguments: list[Any] = []
        outputs: list[str] = []
        for param, text in launch.given.items():
            role = launch.roles[param]
            if role in ("input", "updated"):
                arguments.append(values[_tensor(text)])
            elif role == "attribute":
                arguments.append(_number(text, values))
            elif role == "output":
                outputs.append(_tensor(text))
        made = launch.kernel(*arguments)
        results = made if isinstance(made, (tuple, list)) else [made]
        for name, result in zip(outputs, results, strict=False):
            if isinstance(values.get(name), Tensor):
                values[name].copy_(result)  # a tensor of the caller
            else:
                values[name] = result


# ---- kernels -------------------------------------------------------------------------------------------------------


def _read(name: str, text: str) -> dict[str, Any]:
    """What `tenon new --from` reads from the text."""
    program = os.path.join(os.path.dirname(lib._name), "tenon")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.cu")
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([program, "new", "tenon_op", "--from", path, "--json"], text=True, capture_output=True)
    if done.returncode:
        raise ValueError(f"{name}: {done.stderr.strip().removeprefix('tenon new: ').replace(str(path), 'the text')}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _options(flags: Sequence[str], verbose: bool) -> list[str]:
    kept = [flag for flag in flags if flag.startswith((*_KEPT_FLAGS, *_OTHER_FLAGS))]
    dropped = [flag for flag in flags if flag not in kept]
    if verbose and dropped:
        print(f"  left out, since NVRTC has no use for it: {' '.join(dropped)}")
    return kept


def _make_kernel(name: str, row: dict[str, Any], cuda: str, options: Sequence[str], verbose: bool) -> tenon.Kernel:
    own = re.sub(r"\W", "_", f"{name}_{row['kernel']}").lower()
    signature = re.sub(r"^\w+", own, row["signature"])
    if verbose:
        print(f"  {signature}\n    launch: {row['launch']}")
        print(f"    formula: {row['formula'] or 'none could be read: no gradient, and CUDA only'}")
    launch = f"{row['kernel']}: {row['launch']}"
    formula = row["formula"] or None
    return tenon.kernel(signature, cuda=cuda, launch=launch, formula=formula, file=f"{name}.cu", options=options)


def _in_order(rows: list[dict[str, Any]], function: _Function) -> list[dict[str, Any]]:
    """As the function starts them."""
    flat = re.sub(r"\s", "", function.body)
    places = {row["kernel"]: re.search(rf"\b{row['kernel']}(<[^;]*?>)?<<<", flat) for row in rows}
    return sorted(rows, key=lambda row: found.start() if (found := places[row["kernel"]]) else 0)


def _launcher(
    name: str,
    function: _Function,
    rows: list[dict[str, Any]],
    kernels: dict[str, tenon.Kernel],
    calls: str = "",
    stands_for: Mapping[str, str] | None = None,
) -> _Launcher:
    """Of a function that starts the kernels of `rows`, or calls one that does: what the parameters of that one are
    given stands for them."""
    launches = []
    for row in rows:
        if len(row["arguments"]) != len(row["params"]):
            raise ValueError(
                f"{name}: {row['kernel']} has {len(row['params'])} parameters, but gets {len(row['arguments'])}"
            )
        given = {}
        for param, text in zip(row["params"], row["arguments"], strict=True):
            given[param["name"]] = re.sub(r"\b[a-zA-Z_]\w*\b", lambda m: (stands_for or {}).get(m[0], m[0]), text)
        launches.append(_Launch(kernels[row["kernel"]], given, {p["name"]: p["role"] for p in row["params"]}))
    made = _Launcher(name, function, launches, calls)
    made.read()
    return made


def _make_function(
    name: str, wanted: str, text: str, rows: list[dict[str, Any]], kernels: dict[str, tenon.Kernel]
) -> Any:
    """What the C++ function of this name does: it starts kernels, or it checks something and calls one that does."""
    function = _find_function(text, wanted)
    if function is None:
        raise ValueError(f"{name}: there is no function {wanted} with a body in the sources")
    own = [row for row in rows if row["host"] == wanted]
    for row in own:
        if row["problem"]:
            raise NotImplementedError(f"{name}: {row['kernel']}: {row['problem']}")
    if own:
        return _launcher(name, function, _in_order(own, function), kernels)
    for host in {row["host"] for row in rows if row["host"]}:
        found = re.search(rf"(\breturn\s+)?\b{host}\s*\(", function.body)
        inner = _find_function(text, host) if found else None
        if found is None or inner is None:
            continue
        passed = _split(function.body[found.end() : _closing(function.body, found.end() - 1)])
        if found[1]:
            return _wrapper(function, _make_function(name, host, text, rows, kernels), passed)
        called = _in_order([row for row in rows if row["host"] == host], inner)
        stands_for = dict(zip(inner.params, passed, strict=True))
        return _launcher(name, function, called, kernels, host, stands_for)
    raise NotImplementedError(
        f"{name}: {wanted} starts no kernel that could be seen; call the kernel with tenon.kernel(…)"
    )


def _wrapper(function: _Function, inner: Callable[..., Any], passed: list[str]) -> Callable[..., Any]:
    """`return inner(x, 2.0f);`"""
    if passed == function.params:
        return inner

    def wrapper(*args: Any) -> Any:
        values = dict(zip(function.params, args, strict=True))
        return inner(*(values[p] if p in values else _number(p, values) for p in passed))

    return wrapper


def _exported(text: str) -> dict[str, str]:
    """Of PYBIND11_MODULE: names in Python, and of the C++ functions."""
    found = dict(re.findall(r'\.def\(\s*"(\w+)"\s*,\s*&?([\w:]+)', text))
    if not found and re.search(r"\bTORCH_LIBRARY", text):
        raise NotImplementedError(
            "TORCH_LIBRARY registers operators with PyTorch; Tenon does that itself: name the functions"
        )
    return found


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str] | None = None,
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: Any = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    verbose: bool = False,
    **others: Any,
) -> ModuleType:
    """A module with functions that start kernels, as torch.utils.cpp_extension.load_inline gives it, without a C++
    compiler: only what the C++ says about the kernels counts. `functions` are names of C++ functions, or a dict from
    names to docstrings; without them, those that PYBIND11_MODULE exports, or all that start a kernel. What else
    cpp_extension takes (build_directory, extra_ldflags, …) is accepted and has no use here."""
    if sycl_sources:
        raise NotImplementedError(f"{name}: SYCL sources are not for Tenon")
    text = _without_comments("\n".join([*_names(cpp_sources), *_names(cuda_sources)]))
    cuda = "\n".join(_names(cuda_sources))
    if verbose:
        print(f"{name}:")
    read = _read(name, cuda)
    rows: list[dict[str, Any]] = read["kernels"]
    options = _options([*(extra_cuda_cflags or ())], verbose)
    good = [row for row in rows if not row["problem"]]
    kernels = {row["kernel"]: _make_kernel(name, row, read["cuda"], options, verbose) for row in good}
    if functions is not None:
        wanted = {each: each for each in (functions if isinstance(functions, Mapping) else _names(functions))}
    else:
        wanted = _exported(text) or {row["host"]: row["host"] for row in rows if row["host"]}
    module = ModuleType(name)
    for shown, cpp in wanted.items():
        made = _make_function(name, cpp.rpartition("::")[2], text, rows, kernels)

        def function(*args: Any, _made: Any = made) -> Any:
            return _made(*args)

        function.__name__ = function.__qualname__ = shown
        function.__doc__ = functions[shown] if isinstance(functions, Mapping) else f"{cpp} of {name}."
        setattr(module, shown, function)
    for row in good:
        if not hasattr(module, row["kernel"]):
            setattr(module, row["kernel"], kernels[row["kernel"]])
    return module


def load(
    name: str | os.PathLike[str],
    sources: str | Sequence[str | os.PathLike[str]] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    verbose: bool = False,
    **others: Any,
) -> ModuleType | None:
    """With sources: a module of the kernels in .cu files and the C++ that starts them, as
    torch.utils.cpp_extension.load gives it (see load_inline). Without: adds the operators of a file that `tenon build`
    made, as tenon.load does."""
    if sources is None:
        tenon.load(name)
        return None
    paths = [Path(path) for path in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    cuda = [path.read_text(encoding="utf-8") for path in paths if path.suffix in (".cu", ".cuh")]
    cpp = [path.read_text(encoding="utf-8") for path in paths if path.suffix not in (".cu", ".cuh")]
    if not cuda:
        raise ValueError(
            f"{name}: there is no .cu file among the sources; without a kernel there is nothing to do here"
        )
    folders = [f"-I{path.resolve().parent}" for path in paths if path.suffix == ".cu"]
    flags = (
        [*(extra_cuda_cflags or ()), *dict.fromkeys(folders)] if '#include "' in "".join(cuda) else extra_cuda_cflags
    )
    return load_inline(str(name), cpp, cuda, extra_cuda_cflags=flags, verbose=verbose, **others)
