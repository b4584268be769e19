"""Medians with their spread, as Markdown."""

import statistics


def spread(values, unit="", digits=1):
    """The median, and the least and the most if they differ from it when shown."""
    middle, least, most = statistics.median(values), min(values), max(values)
    shown = [f"{value:.{digits}f}" for value in (middle, least, most)]
    if len(set(shown)) == 1:
        return f"{shown[0]}{unit}"
    return f"{shown[0]}{unit} ({shown[1]} to {shown[2]})"


def percent(values, digits=1):
    return spread([value * 100 for value in values], " %", digits)


def ratio(over, under, digits=2):
    """Pair by pair, so that what disturbs both at one time cancels."""
    return spread([a / b for a, b in zip(over, under, strict=True)], "", digits)


def table(header, rows):
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
