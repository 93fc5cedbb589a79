"""What patch did to a model, in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tenon.torch._patch.probe import Cost


@dataclass(frozen=True)
class Replaced:
    """One kind of module or function that was replaced."""

    what: str  # a class, or a function
    by: str  # operators
    theirs: Cost | None = None  # a call and its backward pass; what functions cost shows in no module
    ours: Cost | None = None


@dataclass
class Report:
    """What was replaced, and what not and why. print() shows it as a table."""

    replaced: Counter[Replaced] = field(default_factory=Counter)
    left: Counter[tuple[str, str]] = field(default_factory=Counter)  # by class and reason

    @property
    def count(self) -> int:
        """How many modules and functions were replaced."""
        return self.replaced.total()

    @property
    def launches(self) -> int:
        """How many kernels fewer a training step launches, where every module that was replaced is called once."""
        return sum(
            times * (row.theirs.launches - row.ours.launches)
            for row, times in self.replaced.items()
            if row.theirs is not None and row.ours is not None
        )

    def __str__(self) -> str:
        first = "Tenon replaced nothing."
        if self.replaced:
            first = f"Tenon replaced {self.count} modules and functions."
            if self.launches > 0:
                first += f" A training step launches {self.launches} kernels fewer."
        table: list[tuple[str, ...]] = [("replaced", "by", "times", "launches", "bytes kept per element")]
        table += [(what, by, str(times), *cells) for (what, by), (times, *cells) in self._rows().items()]
        left: list[tuple[str, ...]] = [("not replaced", "times", "why")]
        left += [(what, str(times), why) for (what, why), times in self.left.most_common()]
        parts = ["", *_columns(table)] if self.replaced else []
        return "\n".join([first, *parts, *(["", *_columns(left)] if self.left else [])])

    def _rows(self) -> dict[tuple[str, str], tuple[int, str, str]]:
        """By class and operator: how often, and what it takes. Those of another size may keep a little more."""
        kinds: dict[tuple[str, str], list[tuple[Replaced, int]]] = {}
        for row, times in self.replaced.most_common():
            kinds.setdefault((row.what, row.by), []).append((row, times))
        made = {}
        for key, rows in kinds.items():
            costs = [(r.theirs, r.ours) for r, _ in rows if r.theirs is not None and r.ours is not None]
            launches = " -> ".join(str(max(c[i].launches for c in costs)) for i in (0, 1)) if costs else ""
            kept = " -> ".join(f"{max(c[i].kept for c in costs):.1f}" for i in (0, 1)) if costs else ""
            made[key] = (sum(times for _, times in rows), launches, kept)
        return made


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
