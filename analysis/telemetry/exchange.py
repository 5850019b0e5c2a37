"""Telemetry from elsewhere, and for elsewhere: a documented format of two tables.

`FORMAT.md` describes it. A *fabric* file lists directed links; an *observations* file has a row for
each path probed, flow or connection seen and segment metered. Both are Parquet or CSV, carry their
version, and are checked as they are read: an error names the file, the row and the reason.
"""

from analysis.telemetry.reading import read_observations
from analysis.telemetry.writing import write_observations
from testbed.record.fabric_file import NumberedFabric, read_fabric, write_fabric
from testbed.record.schemas import FABRIC, OBSERVATIONS
from testbed.record.tables import TableError

__all__ = [
    "FABRIC",
    "OBSERVATIONS",
    "NumberedFabric",
    "TableError",
    "read_fabric",
    "read_observations",
    "write_fabric",
    "write_observations",
]
