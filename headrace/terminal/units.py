"""Numbers as readable text."""

from __future__ import annotations

from datetime import UTC, datetime

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(size_bytes: float) -> str:
    """1536 as ``1.5 KiB``."""
    for unit in _BYTES:
        if abs(size_bytes) < 1024 or unit == _BYTES[-1]:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError("unreachable")


def secs_text(secs: float) -> str:
    """75.2 as ``1 m 15 s``; below a minute with one decimal, below 0.1 s in milliseconds."""
    if secs < 0.1:
        return f"{secs * 1000:.0f} ms"
    if secs < 60:
        return f"{secs:.1f} s"
    minutes, rest = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {rest} s"


def count_text(count: int) -> str:
    """1234567 as ``1,234,567``."""
    return f"{count:,}"


def many(count: int, noun: str, plural: str = "") -> str:
    """1 as ``1 row``, 2,000 as ``2,000 rows``; ``plural``: of a noun that takes no s."""
    return f"{count_text(count)} {noun if count == 1 else plural or f'{noun}s'}"


def more_rows(before: int, now: int) -> str:
    """The change of a range since its analysis."""
    if now == before:
        return "the range has other values now"
    return f"the range has {many(abs(now - before), 'more row' if now > before else 'fewer row')} now"


def percent_text(share: float | None) -> str:
    """0.953 as ``95.3 %``; None as a dash."""
    return "-" if share is None else f"{share * 100:.1f} %"


def percent_range_text(least: float, most: float) -> str:
    """0.41 and 0.516 as ``41.0 to 51.6 %``; bounds that look alike as one figure."""
    low, high = percent_text(least), percent_text(most)
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


def moment(at: float | None) -> datetime | None:
    """Epoch seconds as a time in UTC."""
    return None if at is None else datetime.fromtimestamp(at, UTC)


def time_text(at: datetime | None) -> str:
    """A time in UTC, to the minute."""
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M}"


def brief_text(secs: float) -> str:
    """A time of three digits, with the unit that suits it: ``12.3 µs``, ``1.23 ms``, ``4.5 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if secs >= size:
            return f"{secs / size:.3g} {unit}"
    return f"{secs / 1e-9:.3g} ns" if secs else "0 s"


def changed_text(before: str, now: str) -> str:
    """Two figures as ``12 → 14``; those that look alike as ``12, as before``."""
    return f"{now}, as before" if before == now else f"{before} → {now}"


def longer_text(secs: float, other_secs: float, *, other: str) -> str:
    """How much longer a time is: ``120 µs, 20 µs more than OTHER``; the difference is shown, since the times may look alike."""
    return f"{brief_text(secs)}, {brief_text(secs - other_secs)} more than {other}"
