"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from tuneloss.data.reading import EMBEDDED

DataArgument = Annotated[
    str, typer.Argument(help=f"CSV, Parquet or npz file, or an embedded data set: {', '.join(EMBEDDED)}.")
]
MaxGb = Annotated[float, typer.Option(min=0.001, help="Largest data to read, in GB, on disk and expanded.")]
