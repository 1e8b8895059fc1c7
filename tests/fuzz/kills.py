"""Kill -9 a process that tells a tuner, at random moments, again and again; nothing that was told may be lost.

    python -m tests.fuzz.kills --count 1200 --seed 0

Each process opens the journal of the last one, tells observations as fast as it can, and says how many it told.
After each kill the journal must open, without a warning, with all that the process said it had told, and at most the
one more that it was about to say; and its lines must be those that were there before, unchanged. Some kills fall
into the opening itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from tuneloss import Box, LossTuner, Observation

BOX = Box.from_dict({"l2": (0.1, 100.0), "logloss": 1.0})


def tell_for_ever(path: Path, said: int) -> None:
    """Open the journal and tell observations; after each one, write to a pipe how many there are."""
    tuner = LossTuner(BOX, journal=path)
    n = len(tuner.history)
    while True:
        os.write(said, b"%d\n" % n)
        gram = [[2.0 + n, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 4.0]]
        tuner.tell([1.0 + n % 50, 1.0], Observation(1.0 + 1 / (1 + n), [1.0 + n, 2.0], gram))
        n += 1


def kill_once(path: Path, pause: float) -> int | None:
    """Kill a process after `pause` seconds of telling; return how many records it reported; None if none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            tell_for_ever(path, writing)
        finally:
            os._exit(1)
    os.close(writing)
    time.sleep(pause)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().split()
    if os.WTERMSIG(status) != signal.SIGKILL:
        raise RuntimeError(f"The process ended by itself, after {len(said)} records.")
    return int(said[-1]) if said else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("error")
    rng = np.random.default_rng(options.seed)
    told, began, finished, lost = 0, time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path, before = Path(folder) / "runs.jsonl", b""
        for number in range(options.count):
            if number % 100 == 0:  # a journal anew, so that the first lines are killed too
                path = Path(folder) / f"runs-{number}.jsonl"
                told, before = 0, b""
            said = kill_once(path, float(rng.exponential(0.02)))
            finished += path.with_name(path.name + ".next").exists()
            found = len(LossTuner(BOX, journal=path).history)
            text = path.read_bytes()
            least = told if said is None else said
            if not least <= found <= least + 1 or not text.startswith(before):
                lost += 1
                print(f"kill {number}: {found} records where {least} were told", flush=True)
            told, before = found, text
    print(
        f"{options.count} kills, {finished} of which left a side file, in the middle of an append; "
        f"{lost} lost or changed a record. Seed {options.seed}, {time.monotonic() - began:.0f} s."
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
