"""Tables to classify: inputs and labels from CSV, Parquet and npz files, or embedded ones.

dataset.py         Dataset: inputs, their names and labels, and the rules they must keep
reading.py         read_dataset and read_inputs: find the reader for a source
tables.py          CSV and Parquet files, whose columns are inputs and labels
table_files.py     the bytes of such a file, and the table in them
csv_files.py       the bytes of a CSV file: gzip, encoding, separator and cells
columns.py         what a column is: numbers, categories, something to leave out, or a problem
table_remarks.py   what is said about columns: problems and notes
sparse_table.py    a synthetic table on which the choice of the regularizer matters
arrays.py          npz files, whose arrays are inputs and labels

Names outside of `__all__` are private.
"""

from tuneloss.data.dataset import Dataset
from tuneloss.data.reading import read_dataset, read_inputs

__all__ = ["Dataset", "read_dataset", "read_inputs"]
