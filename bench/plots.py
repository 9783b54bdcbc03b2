"""Draws what versus.py (and, where it is there, scale.py) measured: plots.py VERSUS.JSON DIRECTORY

One picture for each row that compares speeds, with a panel for each kind; in DIRECTORY/README.md
they are put together. Needs matplotlib.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from goals import ROWS
from harness.kinds import KINDS
from report import Outcome

COMPARED = ("tensorflow", "fit", "numpy", "build", "open", "open-shuffled", "resume", "cold")
OURS, THEIRS = "#d1495b", "#8d99ae"


def draw_row(name: str, outcomes: Sequence[Outcome], path: Path) -> None:
    row = next(row for row in ROWS if row.name == name)
    figure, panels = plt.subplots(
        1, len(outcomes), figsize=(1.5 + 3.6 * len(outcomes), 3.6), squeeze=False, layout="tight"
    )
    for panel, outcome in zip(panels[0], outcomes):
        draw_panel(panel, row.lower_is_better, outcome)
        panel.set_title(f"{outcome.kind}: {KINDS[outcome.kind].what}", fontsize=9)
        panel.set_xlabel(row.unit + (" (less is better)" if row.lower_is_better else ""))
    figure.suptitle(row.what, fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_panel(panel: plt.Axes, lower_is_better: bool, outcome: Outcome) -> None:
    """A bar for each peer, the best on top; whiskers from the smallest to the largest value."""
    figures = {
        peer: [result["value"] for result in results] for peer, results in outcome.results.items()
    }
    peers = sorted(figures, key=lambda peer: statistics.median(figures[peer]))
    if lower_is_better:
        peers.reverse()
    middles = [statistics.median(figures[peer]) for peer in peers]
    whiskers = [
        [middle - min(figures[peer]) for middle, peer in zip(middles, peers)],
        [max(figures[peer]) - middle for middle, peer in zip(middles, peers)],
    ]
    colours = [OURS if peer.startswith("ydl") else THEIRS for peer in peers]
    panel.barh(peers, middles, color=colours, xerr=whiskers, error_kw={"lw": 0.8})
    for y, (peer, middle) in enumerate(zip(peers, middles)):
        text = f" {middle:,.3g}" if middle < 1000 else f" {middle:,.0f}"
        panel.text(max(figures[peer]), y, text, fontsize=7, va="center")
    panel.set_xscale("log")
    panel.set_xlim(min(middles) / 2, max(middles) * 12)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def draw_scale(measured: dict, path: Path) -> None:
    figure, panel = plt.subplots(figsize=(5.5, 3.8), layout="tight")
    for column in ("open", "shuffled", "resume"):
        points: dict[int, float] = {}
        for result in measured["results"]:
            points.setdefault(result["records"], statistics.median(result[column]))
        panel.plot(
            [*points], [*points.values()], marker="o", ms=3, label=measured["columns"][column]
        )
    panel.set(xscale="log", yscale="log", xlabel="records", ylabel="ms")
    panel.legend(fontsize=7, frameon=False)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    measured, directory = Path(sys.argv[1]), Path(sys.argv[2])
    outcomes = [Outcome(**fields) for fields in json.loads(measured.read_text())["outcomes"]]
    pictures = {}
    for name in COMPARED:
        panels = [outcome for outcome in outcomes if outcome.row == name]
        if panels:
            pictures[name] = next(row.what for row in ROWS if row.name == name)
            draw_row(name, panels, directory / f"{name}.png")
    scale = measured.with_name("scale.json")
    if scale.exists():
        pictures["scale"] = "opening and beginning against the number of records"
        draw_scale(json.loads(scale.read_text()), directory / "scale.png")
    lines = [
        "# Measured speeds",
        "",
        "All values are in [versus.md](versus.md); what they mean is in",
        "[bench/README.md](../../bench/README.md).",
        "",
    ]
    for name, what in pictures.items():
        lines += [f"![{what}]({name}.png)", ""]
    (directory / "README.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
