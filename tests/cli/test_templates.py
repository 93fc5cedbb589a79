"""The kernels that `tenon new` writes compute what they say: on the CPU, thread by thread (emulate.h). Their launch
lines are evaluated as Tenon does it, for shapes around every branch of the kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Of each template: what its kernels are called with, a loop that says what is right, and shapes.
CASES: dict[str, tuple[str, str, list[dict[str, int]]]] = {
    "elementwise": (
        "x, y, out, n",
        "for (long long i = 0; i < n; i++) check(i, X(i) / (1 + std::exp(-X(i))) * Y(i), 1);",
        [{"n": n} for n in (1, 7, 8, 2048, 2049, 5000)],
    ),
    "row": (
        "x, y, out, rows, c, 0.5f",
        """for (long long r = 0; r < rows; r++) {
            double s = 0;
            for (long long i = 0; i < c; i++) s += X(r * c + i) * X(r * c + i);
            for (long long i = 0; i < c; i++) check(r * c + i, X(r * c + i) / std::sqrt(s / c + 0.5) * Y(i), 1);
        }""",
        [
            {"rows": r, "c": c}
            for r, c in ((1, 1), (3, 7), (9, 64), (5, 512), (3, 520), (2, 1030), (1, 17000), (2, 2048))
        ],
    ),
    "tile": (
        "x, out, m, n",
        """for (long long k = 0; k < b; k++) for (long long i = 0; i < m; i++) for (long long j = 0; j < n; j++)
            check((k * n + j) * m + i, X((k * m + i) * n + j), 0);""",
        [
            {"b": b, "m": m, "n": n}
            for b, m, n in ((1, 1, 1), (2, 64, 64), (1, 65, 130), (3, 3, 200), (1, 66, 7), (1, 136, 264), (2, 24, 128))
        ],
    ),
    "reduction": (
        "sum_parts(x, out, scratch, rows, c); sum_rows(out, scratch, c)",
        """for (long long r = 0; r < rows; r++) {
            double s = 0;
            for (long long i = 0; i < c; i++) s += X(r * c + i);
            check(r, s, 64);
        }""",
        [
            {"rows": r, "c": c}
            for r, c in ((1, 1), (2, 0), (9, 7), (5, 512), (5, 513), (3, 4100), (1, 16384), (2, 16400))
        ],
    ),
    "scan": (
        "sum_parts(x, scratch, c); scan_sums(scratch, c); scan_parts(x, out, scratch, rows, c)",
        """for (long long r = 0; r < rows; r++) {
            double s = 0;
            for (long long i = 0; i < c; i++) {
                const long long at = r * c + (FROM_RIGHT ? c - 1 - i : i);
                check(at, s += X(at), 64);
            }
        }""",
        [
            {"rows": r, "c": c}
            for r, c in ((1, 1), (2, 0), (9, 7), (5, 256), (3, 260), (2, 2100), (3, 8192), (1, 16384), (2, 16400))
        ],
    ),
    "stencil": (
        "x, out, h, w, -3.0f",
        """for (long long k = 0; k < b; k++) for (long long i = 0; i < h; i++) for (long long j = 0; j < w; j++) {
            const long long at = (k * h + i) * w + j;
            const double up = i ? X(at - w) : 0, down = i + 1 < h ? X(at + w) : 0;
            check(at, up + down + (j ? X(at - 1) : 0) + (j + 1 < w ? X(at + 1) : 0) - 3 * X(at), 4);
        }""",
        [
            {"b": b, "h": h, "w": w}
            for b, h, w in ((1, 1, 1), (2, 33, 8), (1, 5, 264), (2, 70, 13), (1, 3, 520), (1, 17, 1040))
        ],
    ),
}

PROGRAM = """
#include "{emulate}"
using T = {type};
{kernels}

static T *x, *y, *out;
static real *scratch;
static double X(long long i) {{ return (double)x[i]; }}
static double Y(long long i) {{ return (double)y[i]; }}
static int wrong;
/* Right to a few roundings of T and of the numbers in between. */
static void check(long long i, double want, double steps) {{
    const double unit = sizeof(T) == 2 ? 1.0 / 256 : sizeof(T) == 4 ? 1e-6 : 1e-14;
    const double last = sizeof(T) == 2 ? std::fabs(want) / 64 : 0;
    const double bound = steps * 4 * unit * (1 + std::fabs(want)) + last;
    if (std::fabs((double)out[i] - want) <= bound) return;
    if (!wrong++) printf("[%lld] is %g, should be %g\\n", i, (double)out[i], want);
}}

int main() {{
{calls}
    return wrong != 0;
}}
"""


def launches(text: str, sizes: dict[str, int]) -> list[tuple[str, list[int], list[int], int]]:
    """(kernel, grid, block, bytes of scratch memory) of a launch line, with these sizes."""
    names = {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max, "sizeof": lambda size: size, **sizes}

    def value(expression: str) -> list[int]:
        found = eval(expression.replace("/", "//"), {"__builtins__": {}}, names)
        return [*found] if isinstance(found, tuple) else [found]

    made, scratch = [], 0
    for step in text.split(";"):
        kernel, _, rest = step.strip().rpartition(": ")
        words = dict(re.findall(r"(\w+)=(.*?)(?=\s+\w+=|$)", rest))
        if rest.startswith("elements"):
            words = {"grid": f"ceil_div(n, {8 * 256})", "block": "256"}
        scratch = max(scratch, value(words.get("scratch", "0"))[0])
        grid, block = ([*value(words[key]), 1, 1][:3] for key in ("grid", "block"))
        made.append((kernel, grid, block, scratch))
    return made


def call(template: str, line: str, sizes: dict[str, int], offset: int, size: int) -> str:
    """C++ that fills the inputs, runs the kernels and compares. `offset`: where in 16 bytes tensors begin; `size`: of
    an element."""
    given, check, _ = CASES[template]
    constants = "".join(f"const long long {key} = {value}; (void){key}; " for key, value in sizes.items())
    elements = " * ".join(sizes)  # of x: all sizes of a case are its dimensions
    text = f"""        {constants}
        const long long count = {elements}, most = count + {sizes.get("rows", 0)};
        x = memory<T>(count, {offset}), y = memory<T>(count, {offset}), out = memory<T>(most, {offset});
        for (long long i = 0; i < count; i++) x[i] = T((float)((i * 37 % 101) - 50) / 32);
        for (long long i = 0; i < count; i++) y[i] = T((float)((i * 53 % 97) - 48) / 32);
"""
    steps = launches(line, {**sizes, "T": size})
    text += f"        scratch = memory<real>({max(bytes_ for *_, bytes_ in steps) // 8} + 1, 0);\n"
    calls = {part.partition("(")[0]: part for part in given.split("; ")}
    for kernel, grid, block, _ in steps:
        assert 0 < block[0] * block[1] * block[2] <= 1024 and block[0] % 32 == 0
        places = ", ".join("{" + ", ".join(f"{n}u" for n in three) + "}" for three in (grid, block))
        text += f"        run({places}, [] {{ {constants}{calls[kernel] if kernel else f'my_op({given})'}; }});\n"
    return f"    {{\n{text}        {check}\n    }}\n"


@pytest.mark.parametrize("kind", ["float", "double", "bf16"])
@pytest.mark.parametrize(("template", "right"), [*((name, 0) for name in CASES), ("scan", 1)])
def test_kernels_compute_what_they_say(template: str, right: int, kind: str, tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    subprocess.run([ROOT / "build/tenon", "new", "my_op", "--template", template], cwd=tmp_path, check=True)
    contract = (tmp_path / "my_op/my_op.c").read_text()
    for name, text in re.findall(r'^#define (\w+) "(.*?)"', contract, re.MULTILINE):
        contract = contract.replace(f'" {name} "', text)
    literal = r'(?:"(?:[^"\\]|\\.)*"[\s\\]*)+'
    found = re.search(rf"\.launch = ({literal})", contract) or re.search(rf"#define LAUNCH[\s\\]*({literal})", contract)
    assert found is not None
    line = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found[1]))
    size = {"float": 4, "double": 8, "bf16": 2}[kind]
    calls = [call(template, line, sizes, offset, size) for sizes in CASES[template][2] for offset in (0, 1)]
    kernels = (tmp_path / "my_op/my_op.cu").read_text().replace("#include <tenon/device.cuh>", "")
    if "using real" not in kernels:
        kernels += "using real = decltype(T() + 0.0f);\n"
    program = PROGRAM.format(
        emulate=Path(__file__).parent / "emulate.h", type=kind, kernels=kernels, calls="".join(calls)
    )
    source = tmp_path / "program.cc"
    source.write_text(program)
    # A GPU stops at an address that does not fit; so does this program.
    flags = ["-std=c++17", "-O1", "-g", "-w", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
    flags += [f"-DFROM_RIGHT={right}"]
    built = subprocess.run([compiler, *flags, source, "-o", tmp_path / "program"], text=True, capture_output=True)
    assert built.returncode == 0, built.stderr[-3000:]
    done = subprocess.run([tmp_path / "program"], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
