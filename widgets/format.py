"""Formatting of figures: dollars, durations, sizes. Every view uses it, so that all show the same text. Pure."""

from __future__ import annotations

import math

NOTHING = "–"


def usd(amount: float | None, *, trim: bool = False) -> str:
    """``amount`` in US dollars to four significant digits, at least to the cent: ``$0.01424``, ``$12.30``.

    Parameters
    ----------
    trim : bool
        Drop trailing zeros after the cents, for amounts that a user chose, such as a budget.
    """
    if amount is None or not math.isfinite(amount):
        return NOTHING
    if abs(amount) < 5e-10:
        return "$0.00"
    decimals = min(max(3 - math.floor(math.log10(abs(amount))), 2), 9)
    digits = f"{abs(amount):,.{decimals}f}"
    if trim:
        whole, _, fraction = digits.partition(".")
        digits = f"{whole}.{fraction.rstrip('0').ljust(2, '0')}"
    return f"{'−' if amount < 0 else ''}${digits}"


def rounded(amount: float | None) -> str:
    """``amount`` in US dollars to three significant digits, for figures that still change: ``$0.0142``, ``$12.3``."""
    if amount is None or not math.isfinite(amount):
        return NOTHING
    if abs(amount) < 5e-10:
        return "$0.00"
    decimals = min(max(2 - math.floor(math.log10(abs(amount))), 0), 9)
    return f"{'−' if amount < 0 else ''}${abs(amount):,.{decimals}f}"


def duration(seconds: float) -> str:
    """``seconds`` to about three digits: ``3.4 s``, ``38 s``, ``2 min 05 s``, ``1 h 04 min``."""
    if not math.isfinite(seconds):
        return NOTHING
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def short_time(seconds: float) -> str:
    """A step's time: ``27 ms`` below a second, ``140 µs`` below a millisecond, else as `duration`."""
    if not math.isfinite(seconds):
        return NOTHING
    if 0 < seconds < 0.000995:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.00995:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else duration(seconds)


def size(n_bytes: float) -> str:
    """``n_bytes`` in powers of 1000: ``96 kB``, ``1.4 MB``."""
    if not math.isfinite(n_bytes):
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5 or unit == "GB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.1f} {unit}" if n_bytes < 9.95 and unit != "B" else f"{n_bytes:.0f} {unit}"


def percent(share: float) -> str:
    """A fraction as a percentage, ``21 %``; one decimal below 10 %."""
    if not math.isfinite(share):
        return NOTHING
    return f"{share * 100:.1f} %" if 0 < share < 0.0995 else f"{share * 100:.0f} %"


def metric(value: float | None) -> str:
    """A loss to four decimals, or to four digits if it is very small or large."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:.4f}" if 0.01 <= abs(value) < 1000 or value == 0 else f"{value:.4g}"


def rough_metric(value: float | None) -> str:
    """A loss that still changes, to three significant digits: ``0.868``, ``1.24e+06``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:#.3g}".rstrip(".") if 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def passes(epoch: float) -> str:
    """Passes over the training data: ``3.4``, ``64``."""
    return f"{epoch:.1f}" if epoch < 9.95 else f"{epoch:.0f}"


def reached(epoch: float) -> str:
    """How far a run is, in epochs: ``10.1``, ``1234``; rounded down, so that the last one is not over early."""
    tenths = math.floor(10 * epoch + 1e-6)  # 24.999999999 may be 25 in another order of sums
    return f"{tenths / 10:.1f}" if tenths < 10_000 else f"{tenths // 10}"
