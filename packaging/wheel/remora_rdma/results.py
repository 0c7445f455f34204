"""Results of the simulator and the benchmarks as typed values. Tables become pandas' by `to_pandas`, if it is installed."""

import csv
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, TextIO, Union

Source = Union[str, "os.PathLike[str]", TextIO]


@dataclass(frozen=True)
class Measurement:
    """A line of `remora bench … --json`."""

    bench: str
    case: str
    metric: str
    unit: str
    value: float
    rounds: List[float]
    baseline: Optional[str] = None
    """Name of the program that was measured beside it."""
    baseline_value: Optional[float] = None
    ratio: Optional[float] = None
    """The value divided by the baseline's."""


@dataclass(frozen=True)
class Flow:
    """A row of flows.csv. Times are in picoseconds."""

    id: int
    src: int
    dst: int
    bytes: int
    start_ps: int
    fct_ps: int
    """Time until the sender has the last acknowledgement."""
    alone_ps: int
    """The same on an idle path, by formula."""
    slowdown: float
    """`fct_ps` divided by `alone_ps`."""
    status: str


@dataclass(frozen=True)
class Run:
    """A folder that `remora sim SCENARIO --out FOLDER` has written."""

    folder: Path
    summary: Dict[str, Any]
    """Contents of summary.json. Times and slowdowns are `None` if no flow has ended."""

    def flows(self) -> Iterator[Flow]:
        """Yields the flows that have ended, in the order of their ends."""
        path = self.folder / "flows.csv"
        return typed(path, Flow) if path.stat().st_size else iter(())

    def table(self, name: str) -> List[Dict[str, Any]]:
        """Returns the rows of another table of the folder, such as `pauses` for pauses.csv."""
        with open(self.folder / f"{name}.csv", encoding="utf-8", newline="") as file:
            return [{key: value(text) for key, text in row.items()} for row in csv.DictReader(file)]

    def to_pandas(self) -> Any:
        """Returns the flows as a pandas.DataFrame."""
        return to_pandas(self.flows())


def run(folder: Union[str, "os.PathLike[str]"]) -> Run:
    """Reads a run of the simulator. Raises `FileNotFoundError` if the run is not over: summary.json is written last."""
    path = Path(folder)
    with open(path / "summary.json", encoding="utf-8") as file:
        return Run(path, json.load(file))


def sweep(folder: Union[str, "os.PathLike[str]"]) -> List[Dict[str, Any]]:
    """Returns the rows of a sweep's table: the axes, the folder of the run, and the numbers of its summary."""
    return Run(Path(folder), {}).table("sweep")


def measurements(source: Source) -> List[Measurement]:
    """Reads the output of `remora bench … --json`, from a file or a stream. Lines of other kinds are left out."""
    if hasattr(source, "read"):
        return list(_measurements(source))
    with open(source, encoding="utf-8") as file:
        return list(_measurements(file))


def _measurements(lines: Iterable[str]) -> Iterator[Measurement]:
    known = {field.name for field in fields(Measurement)}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is no JSON: {error}") from error
        if isinstance(record, dict) and {"bench", "case", "metric", "value"} <= record.keys():
            record = {"unit": "", "rounds": [], **record}
            yield Measurement(**{key: entry for key, entry in record.items() if key in known})


def typed(path: Path, kind: type) -> Iterator[Any]:
    """Yields the rows of a CSV file as values of a dataclass."""
    convert = {field.name: field.type for field in fields(kind)}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield kind(**{name: function(row[name]) for name, function in convert.items()})


def value(text: str) -> Any:
    """Returns the number that a cell holds, `None` for an empty cell, or the text."""
    if text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def to_pandas(rows: Iterable[Any]) -> Any:
    """Returns rows, which are dataclasses or dictionaries, as a pandas.DataFrame."""
    import pandas

    return pandas.DataFrame([row if isinstance(row, dict) else asdict(row) for row in rows])
