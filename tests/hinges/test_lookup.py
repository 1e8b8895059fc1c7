"""The compiled look-up: cells against a search, at the edges of float32, and without a place for compiled code."""

import os
import subprocess
import sys

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from tuneloss.hinges.lookup import CELLS, all_bins, cell_of, compiled, make_cells, searched_bin  # noqa: E402


def found_bins(x, knots):
    cells, found = make_cells(knots), np.empty(len(x), dtype=np.int64)
    all_bins(found, x, cells.knots, cells.first, cells.scale, cells.bins)
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [1e-38, 1e-6, 1.0, 1e30])
@pytest.mark.parametrize("middle", [0.0, 1.0])
def test_bins_by_cells_are_those_by_search(dtype, spread, middle):
    """Numbers at the knots, next to them, far away; knots of float64 that no float32 equals."""
    rng = np.random.default_rng(0)
    knots = np.unique((middle + spread * rng.normal(size=40)).astype(np.float32)).astype(dtype)
    if dtype == np.float64 and len(knots) > 1:
        knots = np.unique(knots + 1e-9 * np.abs(knots))
    near = knots.astype(np.float32)
    tiny = np.float32(3e38)
    x = np.concatenate([near, np.nextafter(near, tiny), np.nextafter(near, -tiny), [tiny, -tiny, 0]]).astype(np.float32)
    x = np.concatenate([x, (middle + spread * rng.normal(size=1000)).astype(np.float32)])
    expected = [int((knots < v).sum() + (knots <= v).sum()) for v in x]
    assert found_bins(x, knots).tolist() == expected


def test_what_is_not_finite_has_a_bin():
    x = np.array([np.nan, np.inf, -np.inf], dtype=np.float32)
    assert found_bins(x, np.array([0.0, 1.0])).tolist() == [0, 4, 0]


def test_cells_do_not_change_the_order():
    x = np.sort(np.random.default_rng(1).normal(size=10_000)).astype(np.float32)
    places = [int(cell_of(v, np.float32(-1), np.float32(1234.5), CELLS - 1)) for v in x]
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] <= CELLS - 1


def test_one_knot():
    assert found_bins(np.array([-1, 0, 1], dtype=np.float32), np.array([0.0])).tolist() == [0, 1, 2]
    assert searched_bin(np.float32(0), np.array([0.0])) == 1


def test_code_is_compiled_where_no_folder_can_be_written_to(monkeypatch):
    """As in a container whose file system is read-only."""
    from numba.core import caching

    monkeypatch.setattr(getattr(caching, "CacheImpl", None) or caching._CacheImpl, "_locator_classes", [])

    def double(x):
        return 2 * x

    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(double)
    assert compiled(double)(21) == 42


def test_code_is_compiled_where_the_disk_is_full(tmp_path):
    """A process that may write few bytes to a file stands for the disk. What is compiled is used, but not kept."""
    resource = pytest.importorskip("resource", reason="needs limits on what a process may write")
    program = (
        "import numpy as np; from tuneloss.hinges.lookup import make_cells; print(make_cells(np.array([0.0])).bins[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
