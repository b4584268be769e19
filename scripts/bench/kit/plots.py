"""Small plots as SVG under docs/plots, which need nothing else to be seen."""

import html
import math

from kit import serving

FOLDER = serving.ROOT / "docs" / "plots"
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f"]
WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 150, 34, 42


def lines(name, title, axes, series):
    """`series` is a list of names with their points; `axes` are the labels across and up."""
    xs = [x for _, points in series for x, _ in points]
    draw = Drawing(title, axes, (min(xs), max(xs)), highest(series))
    draw.across(steps(*draw.x))
    for index, (_, points) in enumerate(series):
        path = " ".join(f"{draw.right(x):.1f},{draw.up(y):.1f}" for x, y in points)
        draw.add(f'<polyline fill="none" stroke="{colour(index)}" stroke-width="1.5" points="{path}"/>')
    draw.legend([label for label, _ in series])
    draw.save(name)


def bars(name, title, axes, groups, series):
    """A group of bars for each of `groups`; `series` is a list of names with a value per group."""
    top = max(value for _, values in series for value in values)
    draw = Drawing(title, axes, (0, len(groups)), top)
    draw.across([(index + 0.5, group) for index, group in enumerate(groups)])
    width = 0.8 / len(series)
    for index, (_, values) in enumerate(series):
        for group, value in enumerate(values):
            left = draw.right(group + 0.1 + index * width)
            right = draw.right(group + 0.1 + (index + 1) * width)
            y, floor = draw.up(value), draw.up(0)
            draw.add(
                f'<rect x="{left:.1f}" y="{y:.1f}" width="{right - left - 1:.1f}"'
                f' height="{floor - y:.1f}" fill="{colour(index)}"/>'
            )
    draw.legend([label for label, _ in series])
    draw.save(name)


def highest(series):
    return max(y for _, points in series for _, y in points)


def colour(index):
    return COLOURS[index % len(COLOURS)]


def steps(low, high):
    """About five round marks."""
    rough = (high - low) / 5 or 1
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first = math.ceil(low / step)
    marks = [step * mark for mark in range(first, math.floor(high / step) + 1)]
    return [(mark, f"{mark:,.10g}") for mark in marks]


class Drawing:
    """An SVG in the making."""

    def __init__(self, title, axes, x, top):
        self.x, self.top, self.parts = x, top * 1.05 or 1, []
        self.text(WIDTH / 2, 16, title, anchor="middle", size=14)
        self.text(self.right(sum(x) / 2), HEIGHT - 6, axes[0], anchor="middle")
        self.text(4, TOP - 8, axes[1])
        for value, label in steps(0, self.top):
            y = self.up(value)
            self.add(f'<path stroke="#ddd" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
            self.text(LEFT - 6, y + 4, label, anchor="end")

    def right(self, x):
        low, high = self.x
        return LEFT + (x - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT)

    def up(self, y):
        return HEIGHT - BOTTOM - y / self.top * (HEIGHT - TOP - BOTTOM)

    def across(self, marks):
        for value, label in marks:
            self.text(self.right(value), HEIGHT - BOTTOM + 16, label, anchor="middle")

    def legend(self, labels):
        for index, label in enumerate(labels):
            y = TOP + 10 + index * 18
            self.add(f'<path stroke="{colour(index)}" stroke-width="4" d="M{WIDTH - RIGHT + 10} {y}h14"/>')
            self.text(WIDTH - RIGHT + 30, y + 4, label)

    def text(self, x, y, text, anchor="start", size=12):
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        self.add(f"<text {place}>{html.escape(str(text))}</text>")

    def add(self, part):
        self.parts.append(part)

    def save(self, name):
        FOLDER.mkdir(exist_ok=True)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        head += ' font-family="sans-serif" fill="#222">'
        paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        (FOLDER / f"{name}.svg").write_text("\n".join([head, paper, *self.parts, "</svg>", ""]))
