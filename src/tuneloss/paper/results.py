"""Results as append-only JSON lines: one record a training run, so that a killed command goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneloss.errors import InvalidInput
from tuneloss.files import write_all
from tuneloss.paper.parallel import side_by_side

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]
Append = Callable[[Iterable[Record]], None]


@dataclass(frozen=True)
class Task:
    """Something to run: it has a key, arguments, and gives so many records."""

    key: Hashable
    arguments: tuple[Any, ...]
    n_records: int = 1


def run_missing(
    path: Path,
    tasks: Sequence[Task],
    run: Callable[..., list[Record]],
    key_of: Callable[[Record], Hashable],
    *,
    jobs: int = 1,
    on_task: Callable[[int, Hashable], object] = lambda done, key: None,
) -> dict[Hashable, list[Record]]:
    """The records of all tasks, by key; what the file has enough records of is not run again.

    run(*arguments) gives all records of a task. They are added to the file together, less those that are there of the
    same task when it was shorter. Tasks run side by side, on this machine or a cluster (parallel.py).

    on_task: called with the number of tasks done, and the key of the last; first with those in the file, and None.
    """
    if len({task.key for task in tasks}) < len(tasks):
        raise InvalidInput(f"Tasks must have different keys; found {[task.key for task in tasks]}.")
    there = _by_key(path, key_of)
    on_task(len(tasks) - len(_missing(tasks, there)), None)
    if _missing(tasks, there):
        with writing(path) as append:
            there = _by_key(path, key_of)  # another may have written since
            missing = _missing(tasks, there)
            done = len(tasks) - len(missing)
            for key, records in side_by_side(_with_key, [(task, run) for task in missing], jobs):
                append(records[len(there.get(key, [])) :])
                there[key] = records
                done += 1
                on_task(done, key)
    return there


def _with_key(task: Task, run: Callable[..., list[Record]]) -> tuple[Hashable, list[Record]]:
    return task.key, run(*task.arguments)


def _missing(tasks: Sequence[Task], there: dict[Hashable, list[Record]]) -> list[Task]:
    return [task for task in tasks if len(there.get(task.key, [])) < task.n_records]


def _by_key(path: Path, key_of: Callable[[Record], Hashable]) -> dict[Hashable, list[Record]]:
    found: dict[Hashable, list[Record]] = {}
    for number, record in enumerate(read_records(path), start=1):
        try:
            found.setdefault(key_of(record), []).append(record)
        except KeyError as name:
            raise InvalidInput(
                f"{path} must hold records of this experiment; line {number} has no {name}. Name another folder."
            ) from None
        except TypeError as reason:  # a part of the key is a list or a dict
            raise InvalidInput(
                f"{path} must hold records of this experiment; line {number} has another type of value ({reason}). "
                "Name another folder."
            ) from None
    return found


def read_records(path: Path) -> list[Record]:
    """The records of a file; none if there is no file. A last line without its end is not one: it was cut short by a
    kill, or another is writing it just now."""
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
        records = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        if not all(isinstance(record, dict) for record in records):
            raise ValueError("a line is another thing")
    except (OSError, ValueError, RecursionError) as reason:
        raise InvalidInput(
            f"{path} must hold one JSON object a line; found that {reason}. Mend it, or remove what is wrong."
        ) from None
    return records


@contextmanager
def writing(path: Path) -> Iterator[Append]:
    """Alone with the file, which is made if it is not there: gives a function that adds records, in one write.

    A last line that was cut short is removed first; nothing else that is there is touched.

    Raises InvalidInput if the file cannot be written, or another process is writing it. Where the disk is full, the
    file is as before the records that it has no room for.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)
    except OSError as reason:
        raise InvalidInput(
            f"Results must be in a folder that can be written: {reason}. Name one for {path.name}."
        ) from None
    with file:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InvalidInput(
                        f"{path} must be written by one command at a time; found that another does. Wait for it, or "
                        "name another folder."
                    ) from None
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)

        def append(records: Iterable[Record]) -> None:
            size = file.seek(0, os.SEEK_END)
            try:
                write_all(file, "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode())
            except OSError as reason:
                file.truncate(size)
                raise InvalidInput(
                    f"Results must be on a disk with room for them: {reason}. {path} has all those before. Make room, "
                    "and give the same command again."
                ) from None

        yield append
