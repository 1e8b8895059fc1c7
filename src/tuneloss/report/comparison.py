"""The page that reports a comparison of methods."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tuneloss.files import write_whole
from tuneloss.report import figures, html, pictures
from tuneloss.report.info import MEASURES, best_run, final_info, words
from tuneloss.report.records import Comparison, RunRecord


@np.errstate(all="ignore")  # extreme numbers are left out of figures, in words
def write_report(comparison: Comparison, folder: Path) -> Path:
    """Write report.html and demo.png (test log loss and error by run) to a folder; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures.save(figures.overview_figure(comparison), folder / "demo.png")
    path = folder / "report.html"
    write_whole(path, report_page(comparison).encode())
    return path


@np.errstate(all="ignore")
def report_page(comparison: Comparison) -> str:
    """The page as text: words, final table, curves, weights, runs."""
    spread = " Bands: 95% interval of the mean over repeats." if comparison.n_repeats > 1 else ""
    line = comparison.methods[0] + (", median of repeats" if comparison.n_repeats > 1 else "")
    curves = [
        (
            pictures.to_svg(figures.best_so_far_figure(comparison, measure), measure),
            f"{name.capitalize()} of the model with the best validation log loss so far.{spread}",
        )
        for measure, name in MEASURES.items()
    ]
    weights = [
        (
            pictures.to_svg(figure, f"weight-{i}"),
            f"Weight of {name}. Line: {line}; points: {', '.join(comparison.methods[1:])}; dashed: the box.",
        )
        for i, (name, figure) in enumerate(figures.weight_figures(comparison).items())
    ]
    first = comparison.methods[0]
    sections = [
        html.Section("What was learned", html.paragraphs(words(comparison)) + _final_table(comparison)),
        html.Section("Best so far", html.figures(curves)),
        html.Section("Weights against the box", html.figures(weights)),
        html.Section(f"Runs of {first}", runs_table(comparison.of(first, 1), comparison)),
    ]
    return html.page(comparison.title, comparison.about, sections)


def run_row(record: RunRecord, names: tuple[str, ...]) -> list[str]:
    """One run as cells: number, weights, validation and test log loss, test error."""
    weights = [f"{record.weights[name]:.3g}" for name in names]
    if record.failed:
        return [str(record.run), *weights, f"failed: {record.failed}", "", ""]
    losses = [f"{record.validation_loss:.4f}", f"{record.test_loss:.4f}"]
    return [str(record.run), *weights, *losses, f"{100 * record.test_error:.1f}%"]


def free_names(comparison: Comparison) -> tuple[str, ...]:
    """Names of the weights that are not pinned."""
    box = comparison.box
    return tuple(name for name, pinned in zip(box.names, box.pinned, strict=True) if not pinned)


def runs_table(runs: tuple[RunRecord, ...], comparison: Comparison) -> str:
    """All runs of one method in one repeat; the chosen one stands out."""
    names = free_names(comparison)
    of = f" of repeat 1 of {comparison.n_repeats}" if comparison.n_repeats > 1 else ""
    return html.table(
        ("run", *names, *MEASURES.values()),
        [run_row(record, names) for record in runs],
        caption=f"Runs{of}; the one with the best validation log loss is marked.",
        chosen=runs.index(best_run(runs)),
    )


def _final_table(comparison: Comparison) -> str:
    rows = [
        [name, *(row[measure].shown(measure) for measure in MEASURES)] for name, row in final_info(comparison).items()
    ]
    spread = f", mean ± 95% interval over {comparison.n_repeats} repeats" if comparison.n_repeats > 1 else ""
    return html.table(
        ("method", *MEASURES.values()),
        rows,
        caption=f"After {comparison.n_runs} runs, the model with the best validation log loss{spread}.",
    )
