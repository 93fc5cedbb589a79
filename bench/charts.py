"""Charts of results as SVG text, for light pages and for dark ones. bench/report.py chooses what they show.

A chart has groups of horizontal bars: one group for an operator, one bar for each side. A bar is the side's time as a
multiple of Tenon's, so Tenon's bar always has the length 1 and a shorter bar is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 760, 176, 76
TOP, BAR, BETWEEN_BARS, BETWEEN_GROUPS = 86, 10, 2, 13
FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours that keep a contrast of 3 (bars) and 4.5 (text) to the page behind them, which shows through."""

    name: str
    text: str
    faint: str
    sides: tuple[str, str, str]  # Tenon first


THEMES = (
    Theme("light", "#1f2328", "#59636e", ("#0a69b0", "#c46a00", "#848d97")),
    Theme("dark", "#f0f6fc", "#9198a1", ("#58b0f0", "#e69f00", "#848d97")),
)


@dataclass(frozen=True)
class Group:
    name: str
    note: str  # behind Tenon's bar
    times: tuple[float | None, ...]  # of the other sides, as multiples of Tenon's


@dataclass(frozen=True)
class Chart:
    title: str
    under: str  # the machine, the type, what was timed
    sides: tuple[str, ...]  # Tenon first
    groups: Sequence[Group]
    source: str  # the results, for whoever opens the file

    def draw(self, theme: Theme) -> str:
        longest = max([1.0, *(t for group in self.groups for t in group.times if t is not None)])
        unit = (WIDTH - LEFT - RIGHT) / longest
        step = len(self.sides) * (BAR + BETWEEN_BARS) - BETWEEN_BARS + BETWEEN_GROUPS
        height = TOP + len(self.groups) * step
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" font-family="{FONT}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(self.spoken())}</desc>",
            text(0, 18, self.title, theme.text, size=17, weight=600),
            text(0, 38, self.under, theme.faint, size=12),
        ]
        at = 0.0
        for side, colour in zip(self.sides, theme.sides, strict=False):
            lines.append(rectangle(at, 53, 11, 11, colour))
            lines.append(text(at + 16, 63, side, theme.text, size=12))
            at += 16 + 7.2 * len(side) + 22
        for number, group in enumerate(self.groups):
            lines += self.bars(group, TOP + number * step, unit, theme)
        return "\n".join([*lines, "</svg>", ""])

    def bars(self, group: Group, top: float, unit: float, theme: Theme) -> list[str]:
        middle = top + (len(self.sides) * (BAR + BETWEEN_BARS) - BETWEEN_BARS) / 2
        lines = [text(LEFT - 12, middle + 4.5, group.name, theme.text, size=13, anchor="end")]
        labels = [group.note, *("" if t is None else f"{t:.2f}×" for t in group.times)]
        for row, (times, label) in enumerate(zip((1.0, *group.times), labels, strict=True)):
            if times is None:
                continue
            y = top + row * (BAR + BETWEEN_BARS)
            lines.append(rectangle(LEFT, y, times * unit, BAR, theme.sides[row]))
            lines.append(text(LEFT + times * unit + 6, y + BAR - 1, label, theme.faint, size=11))
        return lines

    def spoken(self) -> str:
        """The chart in words, for those who do not see it, and where the numbers are from."""
        told = []
        for group in self.groups:
            pairs = zip(self.sides[1:], group.times, strict=True)
            told.append(f"{group.name}: " + ", ".join(f"{side} {t:.2f}" for side, t in pairs if t is not None))
        return f"{self.under}. As multiples of Tenon's time: {'; '.join(told)}. From {self.source}."


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, what: str, fill: str, *, size: int, weight: int = 400, anchor: str = "start") -> str:
    style = f'font-size="{size}"' + (f' font-weight="{weight}"' if weight != 400 else "")
    style += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{number(x)}" y="{number(y)}" {style} fill="{fill}">{escape(what)}</text>'


def rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    where = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect {where} rx="1.5" fill="{fill}"/>'
