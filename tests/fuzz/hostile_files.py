"""Hostile files for `tuneloss report`, `learn` and `predict`: each is accepted, or refused in one line.

    python -m tests.fuzz.hostile_files --seed 0 --count 500

Takes good files, replaces parts of them by what nobody expects there, and runs the command. Journals get the right
checksums, so that what is inside them is read. A warning counts as a traceback, and so does a command that takes longer
than TIMEOUT, a page that is not whole, or a control character that is printed.
"""

import argparse
import io
import json
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from tuneloss import Box, Observation
from tuneloss.cli import app
from tuneloss.sklearn.model_file import write_model
from tuneloss.sklearn.preparation import Preparation
from tuneloss.sklearn.saved_model import SavedModel
from tuneloss.tuning.journal import KEY, VERSION, _line
from tuneloss.tuning.run import Run

TIMEOUT = 30  # seconds
NAMES = ["", " ", "\ud800", "\x00", "\x1b[31m", "<script>x</script>", "--><b>", "nan", "-inf", "学習率", "x" * 9999]
NAMES += ["[/]", "$\\frac", "_a", "../a", "\u202ea", "a\nb", 'a,"b"', "#2b2f36", "👍", "=1+1", "r/right0", "\ufffe"]
NUMBERS = [0, -1, 1, 2, 1e308, -1e308, 1e150, 1e-300, 5e-324, 10**400, -(10**400), 2**63, 1e16, 0.5, 1e5]
OTHERS = [None, True, [], {}, [[]], [1, "a"], {"a": {"b": 1}}, "1" * 6000, [[0.0] * 3] * 3]
ARRAYS = [np.array(value) for value in (np.inf, "x", 2**63, [1j, 2], ["\ud800", "b"], ["<b>", "\x1b["], [b"a", b"b"])]
ARRAYS += [np.zeros((0, 9)), np.zeros(2, [("a", "f8")]), np.full(2, np.nan), np.arange(3)]
BOUNDS = ["[0.1, 10]", "1" * 5000, "[0.1, inf]", "[1, 0]", "nan", "'a'", "[[1]]", "1e400", "[" * 5000, "{a = 1}", "[]"]


def hostile(rng):
    pools = (NAMES, NUMBERS, OTHERS)
    pool = pools[rng.integers(len(pools))]
    return pool[rng.integers(len(pool))]


def changed(value, rng):
    """The same JSON with one part of it, at any depth, replaced, renamed or left out."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[rng.integers(len(keys))]
        copy = dict(value) if isinstance(value, dict) else list(value)
        action = rng.random()
        if action < 0.1:
            del copy[key]
        elif action < 0.25 and isinstance(value, dict):
            copy[NAMES[rng.integers(len(NAMES))]] = copy.pop(key)
        else:
            copy[key] = changed(value[key], rng)
        return copy
    return hostile(rng)


def some(value, rng):
    for _ in range(rng.integers(1, 4)):
        value = changed(value, rng)
    return value


def renamed(text, rng):
    """The text with the name of a term replaced everywhere, so that it is hostile and fits."""
    name = NAMES[rng.integers(len(NAMES))]
    return text.replace('"l2"', json.dumps(name)) if rng.random() < 0.5 else text


def example(rng):
    """Header and runs of a journal."""
    box = Box.from_dict({"l2": (0.01, 100.0), "r/right0": (0.0, 9.0), "r/left0": (0.0, 9.0), "fit": 1.0})
    header = {KEY: VERSION, "box": box.state_dict(), "title": "a", "note": "b", "chosen": 0, "knots": {"r": [0.5]}}
    header["reference"] = {"plain": {"test error": 0.5}}
    if rng.random() < 0.5:
        said = dict.fromkeys(box.names, 1.0)
        header["search"] = {"weights": said, "scale": 2.0, "note": ""}
    runs = []
    for i in range(int(rng.integers(1, 4))):
        gradient, jacobian = rng.normal(size=6), rng.normal(size=(6, 4))
        o = Observation.from_gradients(rng.random() + 0.1, rng.random(4) + 0.1, gradient, jacobian)
        o = o if rng.random() < 0.5 else Observation(o.error, o.features)
        run = Run(i, dict.fromkeys(box.names, 1.0), o, info={"test error": 0.1 * i})
        runs.append((Run(i, run.weights, None, failed="diverged") if rng.random() < 0.2 else run).to_dict())
    return header, runs


def journal(folder, rng):
    header, runs = example(rng)
    bodies = [header, *runs]
    for _ in range(rng.integers(0, 3)):
        at = rng.integers(len(bodies))
        bodies[at] = some(bodies[at], rng)
    bodies = json.loads(renamed(json.dumps(bodies), rng))
    (folder / "runs.jsonl").write_bytes(b"".join(_line(number, body) for number, body in enumerate(bodies)))
    return ["report", folder / "runs.jsonl", "--out", folder / "page.html"]


def observations(folder, rng):
    lines = [{"error": 0.5, "features": {"l2": 1.0, "fit": 2.0}, "weights": {"l2": 1.0, "fit": 1}} for _ in range(3)]
    if rng.random() < 0.5:
        lines = [line | {"gram": np.eye(3).tolist()} for line in lines]
    lines[2] = {"weights": {"l2": 2.0, "fit": 1}, "failed": "diverged"}
    text = "\n".join(json.dumps(some(line, rng) if rng.random() < 0.3 else line) for line in lines)
    if rng.random() < 0.2:
        text = "[" * 100_000 + text if rng.random() < 0.5 else text.replace("0.5", "1" * 5000)
    (folder / "seen.jsonl").write_text(text, "utf-8")
    (folder / "box.toml").write_text(f"l2 = {BOUNDS[max(rng.integers(-29, len(BOUNDS)), 0)]}\nfit = 1.0\n", "utf-8")
    return ["learn", folder / "seen.jsonl", "--box", folder / "box.toml"]


def model(folder, rng):
    preparation = Preparation.of_numbers(("a", "b"), np.zeros(2), np.ones(2))
    write_model(SavedModel(preparation, np.ones((1, 2)), np.zeros(1), np.arange(2), {}), folder / "m.npz")
    with np.load(folder / "m.npz") as file:
        parts = dict(file)
    for _ in range(max(rng.integers(-2, 3), 0)):
        name = list(parts)[rng.integers(len(parts))]
        parts[name] = ARRAYS[rng.integers(len(ARRAYS))] if rng.random() < 0.8 else np.array(str(hostile(rng))[:4000])
    with io.BytesIO() as buffer:
        np.savez(buffer, **parts)
        content = bytearray(buffer.getvalue())
    for _ in range(rng.integers(0, 4) if rng.random() < 0.4 else 0):
        content[rng.integers(len(content))] = rng.integers(256)
    (folder / "m.npz").write_bytes(content[: len(content) if rng.random() < 0.9 else rng.integers(len(content))])
    return ["predict", folder / "m.npz", table(folder, rng), "--out", folder / "predicted.csv"]


def table(folder, rng):
    cells = [str(hostile(rng))[:6000].encode("utf-8", "replace").decode() for _ in range(3)]
    rows = ["a,b"] + [f"{rng.random()},{rng.random()}" for _ in range(3)]
    if rng.random() < 0.3:
        rows[rng.integers(4)] = ",".join(cells[: rng.integers(1, 4)])
    (folder / "t.csv").write_text("\n".join(rows), "utf-8")
    if rng.random() < 0.7:
        return folder / "t.csv"
    np.savez(folder / "t.npz", **{"X" if rng.random() < 0.8 else "y": ARRAYS[rng.integers(len(ARRAYS))]})
    return folder / "t.npz"


def outcome(call, folder):
    """What became of a command: accepted, refused, or where it went wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        signal.alarm(TIMEOUT)
        done = CliRunner().invoke(app, [str(a) for a in call])
        signal.alarm(0)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        where = [f for f in traceback.extract_tb(done.exception.__traceback__) if "tuneloss" in f.filename][-1]
        return f"{type(done.exception).__name__} in {Path(where.filename).name}:{where.lineno}: {done.exception!s:.90}"
    if any(control in done.output for control in "\x1b\x00\u202e"):
        return "a control character was printed"
    if done.exit_code == 1 and done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1:
        return "refused"
    page = folder / "page.html"
    if done.exit_code == 0 and page.exists():
        text = page.read_text("utf-8")
        whole = text.endswith("</html>\n") and "<script" not in text and "\x1b" not in text
        return "accepted" if whole else "the page is not whole"
    return "accepted" if done.exit_code == 0 else f"exit code {done.exit_code}: {done.output[:90]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=500, help="files of each kind")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("too long")))
    print(f"seed {options.seed}\n{'kind':14}{'tried':>8}{'refused':>9}{'accepted':>10}{'tracebacks':>12}")
    for kind in (journal, observations, model):
        found = Counter()
        for i in range(options.count):
            with tempfile.TemporaryDirectory() as folder:
                rng = np.random.default_rng([options.seed, i])
                found[outcome(kind(Path(folder), rng), Path(folder))] += 1
        bad = {text: n for text, n in found.items() if text not in ("refused", "accepted")}
        numbers = f"{options.count:8}{found['refused']:9}{found['accepted']:10}{sum(bad.values()):12}"
        print(
            f"{kind.__name__:14}{numbers}", *(f"  {n} x {text}" for text, n in bad.items()), sep="\n  " if bad else ""
        )


if __name__ == "__main__":
    main()
