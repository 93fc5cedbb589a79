"""What the built library says about its operators (`tenon ops --json`), for the tools that choose among them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from parts import ROOT

TENON = ROOT / "build" / "tenon"

# Formulas that share little code with each other, for the tests that are too slow for all of them.
UNLIKE_FORMULAS = ("rms_norm", "bias_act", "dropout", "adamw_step", "mse", "quantize", "fake_quantize")


@dataclass(frozen=True)
class Table:
    own: tuple[str, ...]  # operators with kernels of their own
    formulas: tuple[str, ...]  # operators whose kernels one generator makes
    calls: dict[str, frozenset[str]]  # the operators that an operator's gradient rule names

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.own, *self.formulas)

    @property
    def unlike(self) -> tuple[str, ...]:
        """Operators that share no code."""
        return (*self.own, *(name for name in UNLIKE_FORMULAS if name in self.formulas))

    def with_gradients(self, names: Iterable[str]) -> frozenset[str]:
        """These operators, and those that compute their gradients."""
        given = frozenset(names)
        return given.union(*(self.calls[name] for name in given))

    def with_callers(self, names: Iterable[str]) -> frozenset[str]:
        """These operators, and those whose gradients they compute."""
        given = frozenset(names)
        return given | {name for name, called in self.calls.items() if called & given}


def from_json(text: str) -> Table:
    own: list[str] = []
    formulas: list[str] = []
    calls: dict[str, frozenset[str]] = {}
    for op in json.loads(text):
        (formulas if op["formula"] else own).append(op["name"])
        rule = op["grad"] if isinstance(op["grad"], dict) else {"statements": []}
        calls[op["name"]] = frozenset(s["op"] for s in rule["statements"] if s.get("op"))
    return Table(tuple(own), tuple(formulas), {k: v & {*own, *formulas} for k, v in calls.items()})


@cache
def read() -> Table:
    if not TENON.is_file():
        raise SystemExit(f"{TENON.relative_to(ROOT)} is missing: run `make build` first")
    return from_json(subprocess.run([TENON, "ops", "--json"], check=True, capture_output=True, text=True).stdout)
