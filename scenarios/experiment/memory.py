"""Reads how much memory a run can have."""

from __future__ import annotations

from pathlib import Path


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return the bytes that a new process can use without swapping, within the limit of its
    container (cgroup v2)."""
    fields = (line.split() for line in meminfo.read_text().splitlines())
    there = 1024 * next(int(value[0]) for name, *value in fields if name == "MemAvailable:")
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        fields = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        files = next(int(value) for name, value in fields if name == "inactive_file")
    except (OSError, ValueError, StopIteration):  # no container, or "max": no limit
        return there
    return min(there, limit - used + files)


def in_gigabytes(n: float) -> str:
    """Return a number of bytes as text, such as ``1.2 GB``, or ``350 MB`` below one gigabyte."""
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
