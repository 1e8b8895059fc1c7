"""Table 2: sizes of the training, validation and test sets, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuneloss.paper.datasets import fresh_split
from tuneloss.paper.experiment import Experiment, Table
from tuneloss.paper.results import Record

PAPER_SIZES = {  # training, validation and test, by our name of the data set
    "caltech101": (3060, 3371, 3370),
    "nct_crc_he_3class": (1667, 1667, 1666),  # the sizes of colorectal_histology, which it replaces
    "oxford_iiit_pet": (3680, 1835, 1834),
    "tf_flowers": (1670, 1000, 1000),
}


@dataclass(frozen=True)
class Table2(Experiment):
    """The sizes of the data sets. Nothing is trained.

    Parameters
    ----------
    datasets : sequence of str
        Names of data sets.
    """

    datasets: Sequence[str]
    NAME = "table2"

    def tables(self, records: Sequence[Record] = ()) -> list[Table]:
        """Return one table with one row per data set."""
        header = ("data", "inputs", "classes", "training", "validation", "test", "paper's sizes")
        return [Table(header, [_row(name) for name in self.datasets])]


def _row(name: str) -> list[str]:
    """Return the row of a data set: its sizes, and the paper's."""
    split = fresh_split(name, 0)
    sizes = [len(part) for part in (split.train_y, split.validation_y, split.test_y)]
    paper = " / ".join(map(str, PAPER_SIZES.get(name, ())))
    return [name, str(split.params_shape[0] - 1), str(split.n_classes), *map(str, sizes), paper]
