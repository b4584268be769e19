//! Plots as SVG, drawn by the page's own style so that they follow light and dark.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 36.0;
const BAR: f64 = 28.0;
/// About how many marks an axis has.
const MARKS: f64 = 5.0;

#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    low: f64,
    high: f64,
    log: bool,
    marks: Vec<(f64, String)>,
}

impl Axis {
    pub fn even(label: &str, low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / MARKS);
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        let marks = (first..=last).map(|n| n as f64 * step).map(|at| (at, number(at))).collect();
        Self { label: label.to_owned(), low, high, log: false, marks }
    }

    /// By factors of ten, marked at 1, 2 and 5.
    pub fn log(label: &str, low: f64, high: f64) -> Self {
        let low = low.max(1e-3);
        let high = high.max(low * 10.0);
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let marks = decades
            .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)))
            .filter(|at| (low..=high).contains(at))
            .map(|at| (at, number(at)));
        Self { label: label.to_owned(), low, high, log: true, marks: marks.collect() }
    }

    /// Even, with marks of one's own.
    pub fn marked(label: &str, high: f64, marks: Vec<(f64, String)>) -> Self {
        Self { label: label.to_owned(), low: 0.0, high, log: false, marks }
    }

    /// Where `value` stands, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.max(self.low).log10() } else { value };
        let span = scale(self.high) - scale(self.low);
        ((scale(value) - scale(self.low)) / span).clamp(0.0, 1.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Line,
    /// Everything below its points, down to the series drawn before.
    Area,
    Bars,
}

/// One named list of points.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub class: &'static str,
    pub mark: Mark,
    pub points: Vec<(f64, f64)>,
}

/// Axes, series, and a level worth knowing.
#[derive(Clone, Debug)]
pub struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// Areas from the top one down, then lines.
    pub series: Vec<Series>,
    /// A level drawn across, such as an objective.
    pub level: Option<f64>,
}

impl Plot {
    pub fn render(&self) -> String {
        let mut out = format!(
            "<figure><figcaption>{}</figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title),
            escape(&self.title)
        );
        self.axes(&mut out);
        for series in &self.series {
            self.draw(&mut out, series);
        }
        if let Some(level) = self.level {
            let y = self.up(level);
            let right = WIDTH - RIGHT;
            let _ = write!(
                out,
                "<line class=\"level\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
        }
        out.push_str("</svg><p class=\"legend\">");
        for series in &self.series {
            let _ =
                write!(out, "<span class=\"{}\">{}</span> ", series.class, escape(&series.name));
        }
        if self.level.is_some() {
            out.push_str("<span class=\"level\">objective</span>");
        }
        out.push_str("</p></figure>\n");
        out
    }

    fn axes(&self, out: &mut String) {
        let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (at, label) in &self.y.marks {
            let y = self.up(*at);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for (at, label) in &self.x.marks {
            let x = self.across(*at);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{floor}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                floor + 15.0
            );
        }
        let middle = f64::midpoint(TOP, floor);
        let _ = write!(
            out,
            "<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text transform=\"translate(12 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 4.0,
            self.x.label,
            self.y.label
        );
    }

    fn draw(&self, out: &mut String, series: &Series) {
        match series.mark {
            Mark::Line => self.path(out, series, &[], ("polyline", "line")),
            Mark::Area => {
                let ends = [series.points.last(), series.points.first()];
                let floor: Vec<f64> = ends.into_iter().flatten().map(|point| point.0).collect();
                self.path(out, series, &floor, ("polygon", "area"));
            }
            Mark::Bars => self.bars(out, series),
        }
    }

    /// The series' points, and those of `floor` on the axis.
    fn path(&self, out: &mut String, series: &Series, floor: &[f64], tag: (&str, &str)) {
        if series.points.is_empty() {
            return;
        }
        let (tag, kind) = tag;
        let _ = write!(out, "<{tag} class=\"{kind} {}\" points=\"", series.class);
        for (x, y) in &series.points {
            let _ = write!(out, "{:.1},{:.1} ", self.across(*x), self.up(*y));
        }
        for x in floor {
            let _ = write!(out, "{:.1},{:.1} ", self.across(*x), HEIGHT - BOTTOM);
        }
        out.push_str("\"/>");
    }

    fn bars(&self, out: &mut String, series: &Series) {
        let floor = HEIGHT - BOTTOM;
        for (x, y) in &series.points {
            let top = self.up(*y);
            let _ = write!(
                out,
                "<rect class=\"area {}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{BAR}\" \
                 height=\"{:.1}\"/>",
                series.class,
                self.across(*x) - BAR / 2.0,
                floor - top
            );
        }
    }

    fn across(&self, x: f64) -> f64 {
        LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, y: f64) -> f64 {
        let floor = HEIGHT - BOTTOM;
        floor - self.y.place(y) * (floor - TOP)
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= step * 0.999);
    digit.unwrap_or(10.0) * power
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text that stays text on a page.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within_the_axis() {
        let labels = |axis: Axis| axis.marks.into_iter().map(|mark| mark.1).collect::<Vec<_>>();
        assert_eq!(labels(Axis::even("x", 0.0, 47.0)), ["0", "10", "20", "30", "40"]);
        assert_eq!(labels(Axis::even("x", 0.0, 0.9)), ["0", "0.2", "0.4", "0.6", "0.8"]);
        assert_eq!(labels(Axis::log("x", 0.4, 30.0)), ["0.5", "1", "2", "5", "10", "20"]);
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    #[test]
    fn every_point_lands_inside_the_frame() {
        let plot = Plot {
            title: "t".to_owned(),
            x: Axis::even("x", 0.0, 10.0),
            y: Axis::log("y", 1.0, 100.0),
            series: Vec::new(),
            level: None,
        };
        for value in [-1.0, 0.0, 5.0, 1e9] {
            assert!((LEFT..=WIDTH - RIGHT).contains(&plot.across(value)), "{value}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&plot.up(value)), "{value}");
        }
    }
}
