"""How tools/parts.py runs parts: in what order, several at a time, and what becomes of those behind a failure."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path

import pytest

import parts
import table
from parts import Part


def python(text: str) -> list[list[str]]:
    return [[sys.executable, "-c", text]]


@pytest.fixture(autouse=True)
def _logs_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "LOGS", tmp_path / "logs")


def test_a_chosen_part_brings_what_it_needs() -> None:
    listed = [Part("a", "", []), Part("b", "", [], needs=["a"]), Part("c-1", "", [], needs=["b"]), Part("d", "", [])]
    assert [part.name for part in parts.choose(listed, ["c"])] == ["a", "b", "c-1"]
    assert parts.choose(listed, []) == listed
    with pytest.raises(SystemExit, match="there is no part 'e'"):
        parts.choose(listed, ["e"])


def test_the_beginning_of_the_longest_chain_is_most_urgent() -> None:
    listed = [Part("build", "", [], seconds=1), Part("long", "", [], needs=["build"], seconds=9)]
    listed.append(Part("other", "", [], seconds=5))
    assert [parts.urgency(part, listed) for part in listed] == [10, 9, 5]


@pytest.mark.parametrize("jobs", [1, 3])
def test_needs_are_met_and_failures_block(jobs: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    listed = [
        Part("make", "", python(f"import time; time.sleep(0.3); open({str(made)!r}, 'w')")),
        Part("use", "", lambda: python(f"open({str(made)!r}); print('7 passed, 0 failed')"), needs=["make"]),
        Part("break", "", python("raise SystemExit('no good')")),
        Part("behind", "", python("print('never')"), needs=["break"]),
        Part("cannot", "", [], unable=lambda: "no tool"),
        Part("behind-2", "", python("print('never')"), needs=["cannot"]),
    ]
    assert parts.run_all(listed, False, jobs) == 1
    said = capfd.readouterr().out
    assert said.splitlines()[-1] == "8 passed, 1 failed" and "no good" in said
    assert "not run: it needs break" in said and "not run: it needs cannot" in said and "no tool" in said


def test_results_are_handed_on_where_all_is_well() -> None:
    seen: list[parts.Result] = []
    assert parts.run_all([Part("a", "", python(""))], False, 2, seen.extend) == 0
    assert [result.part.name for result in seen] == ["a"]


def load_tests() -> types.ModuleType:
    """tools/test.py, whose name is that of a package of Python."""
    spec = importlib.util.spec_from_file_location("tools_test", Path(table.__file__).with_name("test.py"))
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_every_c_test_is_run_by_one_part() -> None:
    """Those that NVRTC makes long are left to part nvrtc."""
    by_name = {part.name: part.commands for part in load_tests().parts()}
    (unit,), (alone, others) = by_name["unit"], by_name["nvrtc"]
    names = {path.stem for path in Path(table.__file__).parents[1].joinpath("tests").rglob("test_*.c")}
    left_out = {name for name in names if re.search(unit[unit.index("-E") + 1], name)}
    chosen = {name for name in names if re.search(others[others.index("-R") + 1], name)}
    assert left_out == {*chosen, Path(alone[0]).name} and len(left_out) == 5


def test_sanitizers_take_every_operator_that_shares_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, known = load_tests(), table.Table(("a", "b", "c", "d", "e"), (), {})
    monkeypatch.setattr(table, "read", lambda: known)
    (_, *checks), (_, race) = loaded.under_asan(), loaded.under_tsan()
    assert sorted(name for command in checks for name in command if name in known.own) == list(known.own)
    assert {t for command in checks for t in command[command.index("--dtype") + 1].split(",")} >= {"f16", "f32", "f64"}
    assert race[-5:] == list(known.own)
