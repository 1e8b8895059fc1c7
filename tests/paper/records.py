"""Records small enough to work out by hand, and what tests of records share."""

FIELDS = {
    "experiment", "dataset", "tuner", "repeat", "run", "weights", "validation_loss", "validation_error", "test_loss",
    "test_error", "seconds",
}  # fmt: skip


def record(tuner, repeat, run, validation_loss, test_loss, validation_error=0.5, test_error=0.5, **fields):
    """A run on tf_flowers; `fields` replace or add to its own."""
    names = ("validation_loss", "test_loss", "validation_error", "test_error")
    values = zip(names, (validation_loss, test_loss, validation_error, test_error), strict=True)
    return {"dataset": "tf_flowers", "tuner": tuner, "repeat": repeat, "run": run, **dict(values), **fields}


def without_time(records):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]
