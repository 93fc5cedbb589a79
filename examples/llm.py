"""What the examples that train a small language model share: a text, and a picture of losses."""

from __future__ import annotations

import html
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

WHO = ["the cat", "a dog", "my sister", "the old man", "every bird", "nobody", "the captain", "a child"]
DOES = ["sees", "follows", "paints", "forgets", "builds", "carries", "likes", "sells"]
WHAT = ["the sea", "a red boat", "two stones", "the moon", "an open door", "her letters", "some bread", "a long road"]
WHEN = ["today", "at night", "in the rain", "without a word", "once more", "before dawn"]
LETTERS = sorted({letter for part in (*WHO, *DOES, *WHAT, *WHEN, " .") for letter in part})


def text(sentences: int = 4000, seed: int = 0) -> list[int]:
    """Sentences of a small grammar, as numbers of letters."""
    choose = random.Random(seed)
    made = [" ".join(choose.choice(words) for words in (WHO, DOES, WHAT, WHEN)) + ". " for _ in range(sentences)]
    number = {letter: i for i, letter in enumerate(LETTERS)}
    return [number[letter] for letter in "".join(made)]


COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756"]


def draw(path: Path, losses: Mapping[str, Sequence[float]], width: int = 640, height: int = 360) -> None:
    """Losses over steps as an SVG, a line for each name."""
    top = max(max(values) for values in losses.values())
    left, bottom, inner, tall = 48, height - 36, width - 200, height - 60
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    parts += ['<rect width="100%" height="100%" fill="white"/>']
    for part in range(5):
        y = bottom - tall * part / 4
        parts += [f'<path d="M{left} {y:.1f}h{inner}" stroke="#ddd"/>']
        parts += [f'<text x="{left - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{top * part / 4:.1f}</text>']
    for i, (name, values) in enumerate(losses.items()):
        colour, far = COLOURS[i % len(COLOURS)], max(1, len(values) - 1)
        points = " ".join(f"{left + inner * n / far:.1f},{bottom - tall * v / top:.1f}" for n, v in enumerate(values))
        dashes = f"{4 + 2 * i} {2 * i}" if i else "none"  # lines that lie on each other can all be seen
        parts += [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-dasharray="{dashes}"/>']
        parts += [
            f'<text x="{left + inner + 12}" y="{40 + 18 * i}" font-size="12" fill="{colour}">{html.escape(name)}</text>'
        ]
    parts += [f'<text x="{left}" y="{height - 12}" font-size="11">loss over {far + 1} steps</text>', "</svg>"]
    path.write_text("\n".join(parts) + "\n")
