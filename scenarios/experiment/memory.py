"""How much memory there is for a run."""

from __future__ import annotations

from pathlib import Path


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int:
    """What a new process can have without swapping, within a container's limit (cgroup v2)."""
    fields = (line.split() for line in meminfo.read_text().splitlines())
    there = 1024 * next(int(value[0]) for name, *value in fields if name == "MemAvailable:")
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        fields = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        files = next(int(value) for name, value in fields if name == "inactive_file")
    except (OSError, ValueError, StopIteration):  # "max" is no limit
        return there
    return min(there, limit - used + files)


def in_gigabytes(n: float) -> str:
    """``1.2 GB``; below one ``350 MB``."""
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
