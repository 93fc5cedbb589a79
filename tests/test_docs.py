"""The documents are true: their examples parse, compile and run, their links lead somewhere, their steps work."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]

import compatibility  # noqa: E402
import coverage_doc  # noqa: E402
import follow_doc  # noqa: E402
import operators_doc  # noqa: E402
import report  # noqa: E402

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS += sorted((ROOT / "examples").rglob("*.md"))


def contract_examples() -> list[str]:
    """The signatures in docs/contract.md, each on one line; a line that begins with a space goes on with the last."""
    found: list[str] = []
    for block in follow_doc.blocks(ROOT / "docs" / "contract.md"):
        if block.language != "tenon":
            continue
        for line in block.text.splitlines():
            if line.startswith(" "):
                found[-1] += " " + line.strip()
            else:
                found.append(line)
    return found


def test_contract_examples_parse(tmp_path: Path) -> None:
    library = ROOT / "build" / "libtenon_static.a"
    if not library.is_file():
        pytest.fail("build/libtenon_static.a is missing: run `make build` first")
    program = tmp_path / "contracts"
    source = ROOT / "tests" / "test_docs_contracts.c"
    flags = ["-D_GNU_SOURCE", f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}", "-lpthread", "-ldl", "-lm"]
    build = ["cc", str(source), str(library), *flags, "-o", str(program)]
    subprocess.run(build, check=True)
    examples = contract_examples()
    assert len(examples) > 10
    done = subprocess.run([program], input="\n".join(examples) + "\n", text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


def test_contract_examples_are_those_of_the_table() -> None:
    """Contracts in docs/contract.md are shown as they are; what does not exist is called my_…."""
    listed = subprocess.run([ROOT / "build" / "tenon", "ops", "--json"], check=True, capture_output=True, text=True)
    table = {" ".join(row["signature"].split()) for row in json.loads(listed.stdout)}
    examples = [" ".join(example.split()) for example in contract_examples()]
    assert [e for e in examples if not e.startswith("my_") and e not in table] == []
    assert sum(e in table for e in examples) > 8


def test_every_variable_is_described() -> None:
    """docs/environment.md has the variables that the doctor knows, and those are all that the project reads."""
    doctor = (ROOT / "cli" / "doctor" / "doctor_system.c").read_text()
    known = set(re.findall(r'\{"(TENON_\w+)", \w+', doctor))
    sources = [p for name in ("src", "cli", "adapters", "python", "tests", "tools") for p in (ROOT / name).rglob("*.*")]
    reads = re.compile(r"""(?:getenv\(|environ\.get\(|environ\[)["'](TENON_\w+)|\$\{(TENON_\w+):[-+]""")
    found = [reads.findall(p.read_text()) for p in sources if p.suffix in (".c", ".h", ".py", ".sh")]
    assert {a or b for names in found for a, b in names} <= known
    text = (ROOT / "docs" / "environment.md").read_text()
    described = re.findall(r"^\| `(TENON_\w+)` \|", text, re.MULTILINE)
    assert len(known) > 15 and len(described) == len(set(described))
    assert set(described) == known


def device_functions() -> set[str]:
    """The functions that tenon/device.cuh defines, those that macros make too; not what is Tenon's own."""
    text = (ROOT / "build" / "include" / "tenon" / "device.cuh").read_text()
    begin = r"^(?:template <[^{;]*?> )?TN_(?:DEVICE|CALLED|MEMBER) "
    found = set(re.findall(begin + r"[^({;]*?\b(\w+)(?:<\w+>)?\(", text, re.MULTILINE))
    found |= set(re.findall(r"^TN_FUNCTION\((\w+)\)$", text, re.MULTILINE))
    reductions = re.findall(r"^TN_REDUCE\((\w+),", text, re.MULTILINE)
    found |= {f"{over}_{name}" for over in ("warp", "block", "cluster") for name in reductions}
    return {name for name in found if not name.startswith("tn_")}


def test_device_functions_are_described() -> None:
    text = (ROOT / "docs" / "cuda.md").read_text()
    described = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    functions = device_functions()
    assert len(functions) > 100 and {"exp", "block_sum", "load", "copy_async"} <= functions
    assert functions - described == set()


def test_promises_are_held() -> None:
    """docs/numerics.md names a case of `tenon check`, a test or a file of tests for each promise."""
    said = subprocess.run([ROOT / "build" / "tenon", "help", "check"], check=True, capture_output=True, text=True)
    cases = set(re.findall(r"^  (\w+)  ", said.stdout.partition("\nCases\n")[2], re.MULTILINE))
    files = [p for p in (ROOT / "tests").rglob("test_*.*") if p.suffix in (".c", ".py")]
    tests = {p.stem for p in files}.union(*(re.findall(r"def (test_\w+)", p.read_text()) for p in files))
    held = re.findall(r"^\|[^|]+\|([^|]+)\|$", (ROOT / "docs" / "numerics.md").read_text(), re.MULTILINE)
    names = [name for cell in held for name in re.findall(r"`(\w+)`", cell)]
    assert len(names) > 30 and [name for name in names if name not in cases | tests] == []
    assert [cell for cell in held if "`" not in cell and cell.strip() not in ("held by", "---")] == []


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link may have behind the #: the headings of a page, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links(document: Path) -> None:
    text = without_code(document)
    for link, image in re.findall(r'\]\(([^)\s]+)\)|\bsrc(?:set)?="([^"]+)"', text):
        target = link or image
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        page = document.parent / name if name else document
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), target


@pytest.mark.parametrize("page", list(report.PAGES), ids=lambda page: page.name)
def test_numbers_are_the_measured_ones(page: Path) -> None:
    text = page.read_text()
    assert report.split(text)[1] == report.PAGES[page](report.named(text)), "python bench/report.py --write"


def messages_of_calls() -> str:
    """What some wrong calls raise, without what points at the place."""
    calls = ["softmax(np.ones(2, np.int64))", "layer_norm(np.ones((3, 4)), np.ones(5))"]
    calls += ["fuse('max(x, 0)')", "fuse('heaviside(x)')", "fuse('x.sum()')"]
    calls += ["fuse('(x - mean(x, axis=0)) * g')(np.ones((2, 3)), np.ones(3))"]
    program = "import numpy as np, tenon.numpy as tn\n"
    for call in calls:
        program += f"try: tn.{call}\nexcept Exception as error: print(str(error).partition(' at column')[0])\n"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == len(calls)
    return done.stdout


def test_messages_are_those_of_the_sources() -> None:
    """What docs/troubleshooting.md calls messages of Tenon is in its sources; … stands for what a call fills in."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    ours = text[: text.index("\n## Building extensions for PyTorch")]
    paths = [p for name in ("src", "cli", "adapters", "python") for p in (ROOT / name).rglob("*")]
    source = "".join(p.read_text() for p in paths if p.suffix in (".c", ".h", ".py"))
    source = re.sub(r'"\s*(SYMBOL\s*)?f?"', lambda m: "tenon_plugin" if m[1] else "", source)  # strings that go on
    source = re.sub(r"%\.?\d*[a-z]+|\{[^{}\n]*\}", "…", source.replace("{_NAME}", "libtenon.so"))
    source += messages_of_calls()
    headings = re.findall(r"^### `(.*)`$", ours, re.MULTILINE)
    assert len(headings) > 20
    for heading in headings:
        pieces = re.split(r"…|`, `|cuda:0|cpu", heading)
        assert [piece for piece in pieces if piece.strip(" :,.") not in source] == [], heading


def test_numbers_of_when_not_are_the_measured_ones() -> None:
    """Tables behind `<!-- from NAME -->` have rows of bench/results/NAME-….json, which the page links, rounded."""
    text = (ROOT / "docs" / "when-not.md").read_text()
    found = 0
    for name, table in re.findall(r"<!-- from ([\w-]+) -->\n\n((?:\|.*\n)+)", text):
        (file,) = set(re.findall(rf"\(\.\./(bench/results/{name}-[\w-]+\.json)\)", text))
        rows = json.loads((ROOT / file).read_text())["rows"]
        for line in table.splitlines()[2:]:
            op, which, *shown = (cell.strip() for cell in line.strip("|").split("|"))
            (row,) = [r for r in rows if r["op"] == op and r["pass"] == which and r.get("type", "bf16") == "bf16"]
            measured = [row[k] for k in ("tenon_us", "eager_us", "torch_us", "compile_us") if k in row]
            assert shown == [f"{us:.1f}" if us < 10 else f"{us:.0f}" for us in measured], (op, which)
            found += 1
    assert found >= 10


@pytest.mark.parametrize("chart", report.CHARTS)
def test_charts_show_the_measured_numbers(chart: str) -> None:
    for path, drawn in report.images(chart, report.drawn_from(chart)).items():
        assert path.read_text() == drawn, "python bench/report.py --write"
        root = ElementTree.fromstring(drawn)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, w, h = (float(bar.attrib[key]) for key in ("x", "y", "width", "height"))
            assert w > 0 and x + w <= width and y + h <= height


def test_every_chart_is_on_a_page() -> None:
    shown = "".join(page.read_text() for page in DOCUMENTS)
    for path in report.IMAGES.glob("*.svg"):
        assert f"img/{path.name}" in shown, path.name


def test_every_operator_is_described() -> None:
    assert operators_doc.PAGE.read_text() == operators_doc.page(), "python tools/operators_doc.py --write"


@pytest.mark.parametrize("page", coverage_doc.PAGES, ids=lambda page: page.file)
def test_every_function_of_a_framework_is_listed(page: coverage_doc.Page) -> None:
    """That of TensorFlow, which has an environment of its own, is in tests/tensorflow."""
    current = coverage_doc.is_current(page)
    if current is None:
        pytest.skip("another version, or none")
    assert current, f"python tools/coverage_doc.py --write {page.file}"


def test_compatibility_is_what_was_tested() -> None:
    text = compatibility.DOCUMENT.read_text()
    rows = compatibility.read(text)
    assert compatibility.write(rows) == text, "tools/compat writes it"
    for row in rows:
        assert row.failed == "0" and int(row.passed) > 1000 and len(row.library) == 64
        assert len({other.library for other in rows if other.same_machine(row)}) == 1, "one file for all versions"
        again = compatibility.with_row(rows, row)
        assert sorted(again, key=compatibility.Row.key) == sorted(rows, key=compatibility.Row.key)


FOLLOWED = ["README.md"]
FOLLOWED += [f"docs/{name}.md" for name in ("c", "cuda", "formulas", "from-cpp-extension", "getting-started")]
FOLLOWED += [
    f"docs/{name}.md" for name in ("numerics", "numpy", "onnxruntime", "own-kernels", "own-operators", "pytorch")
]
FOLLOWED += [f"docs/{name}.md" for name in ("troubleshooting", "when-not")]


@pytest.mark.parametrize("document", FOLLOWED)
def test_examples_run(document: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("build", "python", "include"):
        (tree / name).symlink_to(ROOT / name)
    follow_doc.follow(ROOT / document, tree, tmp_path / "plugin")


EXAMPLES = [path for path in sorted((ROOT / "examples").rglob("*.py")) if path.stem != "demo"]  # `make demo` installs
PACKAGES = {"sklearn": "scikit-learn", "keras": "tensorflow"}  # of modules that are called otherwise
BRING_NUMPY = {"jax", "scikit-learn", "tensorflow"}


def imported(path: Path) -> set[str]:
    """The modules that a program cannot do without, and those of its neighbours that it imports: imports at the top, or
    in functions but for those in a `try`. Of frameworks.py, which tries each framework, those at the top."""
    tree = ast.parse(path.read_text())
    tried = {id(node) for block in ast.walk(tree) if isinstance(block, ast.Try) for node in ast.walk(block)}
    nodes = tree.body if path.stem == "frameworks" else [node for node in ast.walk(tree) if id(node) not in tried]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    folders = [path.parent, path.parent.parent]  # lessons share a file that is one folder up
    files = {name: folder / f"{name}.py" for name in found for folder in folders if (folder / f"{name}.py").is_file()}
    beside = {name: file for name, file in files.items() if file != path}
    return (found - {*files}).union(*(imported(file) for file in beside.values()))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_examples_name_what_they_need(example: Path) -> None:
    header = ast.get_docstring(ast.parse(example.read_text())) or ""
    named = {name for line in re.findall(r"pip install (.*)", header) for name in line.split()}
    modules = imported(example) - sys.stdlib_module_names - {"tenon"}
    needed = {PACKAGES.get(module, module) for module in modules}
    assert named == needed - ({"numpy"} if needed & BRING_NUMPY else set())


FORMULAS = [b.text for b in follow_doc.blocks(ROOT / "docs" / "formulas.md") if b.language == "formula"]


@pytest.mark.parametrize("formula", FORMULAS, ids=range(len(FORMULAS)))
def test_formula_examples_compile(formula: str) -> None:
    command = [ROOT / "build" / "tenon", "fuse", formula, "--no-check", "--no-bench"]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", ["ops", "fuse", "devices"])
def test_examples_of_the_help_run(verb: str) -> None:
    path = f"{ROOT / 'build'}{os.pathsep}{os.environ['PATH']}"
    shown = subprocess.run([ROOT / "build" / "tenon", verb, "--help"], check=True, capture_output=True, text=True)
    lines = re.findall(rf"^  (.*\btenon {verb}\b.*?)(?:  .*)?$", shown.stdout, re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        if "--load" in line:  # a file of the reader's own
            continue
        done = subprocess.run(line, shell=True, env={**os.environ, "PATH": path}, capture_output=True, timeout=100)
        assert done.returncode == 0, line


@pytest.fixture(scope="module")
def copy_of_the_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all documents that add something: after the first, a build compiles only what the next one adds."""
    tree = tmp_path_factory.mktemp("tree")
    follow_doc.copy_tree(tree)
    return tree


# Documents that add something, and how many files of the project each touches for what it adds.
ADDING = {
    "adding-an-operator": {"operator": 2, "formula": 1},
    "adding-a-primitive": {"primitive": 1},
    "adding-a-backend": {"backend": 2},
    "adding-a-device": {"device": 2},
}


@pytest.mark.parametrize("document", ADDING)
def test_adding(document: str, copy_of_the_project: Path) -> None:
    """In a copy of the project, all of them one after the other: each builds and works as it says."""
    page = ROOT / "docs" / f"{document}.md"
    assert {thing: len(files) for thing, files in follow_doc.touched(page).items()} == ADDING[document]
    command = [sys.executable, ROOT / "tools" / "follow_doc.py", page]
    env = {**os.environ, "TENON_QUICK": "ON"}  # kernels need not be fast
    done = subprocess.run(
        [*command, "--tree", copy_of_the_project], env=env, text=True, capture_output=True, cwd=copy_of_the_project
    )
    assert done.returncode == 0, done.stdout + done.stderr
