//! Lines over two logarithmic axes, as SVG that is readable on light and on dark ground.

use std::fmt::Write;

use plotters::{
    coord::combinators::IntoLogRange,
    prelude::{
        ChartBuilder, Circle, Color, IntoDrawingArea, IntoFont, LineSeries, PathElement, RGBColor, SVGBackend,
        SeriesLabelPosition, TRANSPARENT,
    },
};

use crate::AnyError;

const SIZE: (u32, u32) = (720, 400);
const MARGIN: u32 = 14;
const FONT: &str = "sans-serif";
const TITLE: u32 = 18;
const LABEL: u32 = 13;
const X_ROOM: u32 = 46;
const Y_ROOM: u32 = 76;
const DOT: u32 = 3;
/// Of an axis, at most: more would run into each other.
const TICKS: usize = 6;
/// Colours that stand out from white and from black, in the order of the lines.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x22, 0x8b, 0xe6),
    RGBColor(0xe6, 0x77, 0x00),
    RGBColor(0x2f, 0x9e, 0x44),
    RGBColor(0xd6, 0x33, 0x6c),
    RGBColor(0x84, 0x5e, 0xf7),
];
/// Of letters and axes on light ground; [`THEME`] replaces it on dark.
const INK: RGBColor = RGBColor(0x3b, 0x42, 0x4a);
const GRID: RGBColor = RGBColor(0x8b, 0x94, 0x9e);
/// Rules of the style sheet go before the attributes that the backend writes.
const THEME: &str = "<style>@media (prefers-color-scheme: dark) { text { fill: #d0d7de } [stroke=\"#3B424A\"] { stroke: \
                     #8b949e } }</style>";

/// What is drawn.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Where no line is expected.
    pub(crate) legend: Corner,
    pub(crate) lines: Vec<Line>,
}

/// Of a plot.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Corner {
    UpperLeft,
    UpperRight,
    LowerRight,
}

/// One line, or a dot of its own.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Above zero, both of them.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Plot {
    /// # Errors
    /// There is nothing to draw, or something that has no place on a logarithmic axis.
    pub(crate) fn svg(&self) -> Result<String, AnyError> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        if points().any(|(x, y)| !(x.is_normal() && y.is_normal() && *x > 0.0 && *y > 0.0)) {
            return Err(format!("{}: a point is not above zero", self.title).into());
        }
        let (Some(x), Some(y)) = (range(points().map(|point| point.0)), range(points().map(|point| point.1))) else {
            return Err(format!("{}: there is nothing to draw", self.title).into());
        };
        let mut text = String::new();
        self.draw(&mut text, x, y).map_err(|e| format!("{}: {e}", self.title))?;
        let begin = text.find("<svg").and_then(|at| Some(at + text[at..].find('>')? + 1));
        text.insert_str(begin.ok_or("there is no SVG in what was drawn")?, THEME);
        Ok(text)
    }

    fn draw(&self, text: &mut String, x: (f64, f64), y: (f64, f64)) -> Result<(), AnyError> {
        let failed = |e: String| -> AnyError { e.into() };
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, (FONT, TITLE).into_font().color(&INK))
            .margin(MARGIN)
            .x_label_area_size(X_ROOM)
            .y_label_area_size(Y_ROOM)
            .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())
            .map_err(|e| failed(e.to_string()))?;
        let label = (FONT, LABEL).into_font().color(&INK);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.mix(0.3))
            .axis_style(INK)
            .label_style(label.clone())
            .axis_desc_style(label.clone())
            .x_labels(TICKS)
            .y_labels(TICKS)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .x_desc(self.x)
            .y_desc(self.y)
            .draw()
            .map_err(|e| failed(e.to_string()))?;
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let drawn = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2));
            let series = chart.draw_series(drawn).map_err(|e| failed(e.to_string()))?;
            series.label(&line.name).legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
            let dots = line.points.iter().map(|point| Circle::new(*point, DOT, colour.filled()));
            chart.draw_series(dots).map_err(|e| failed(e.to_string()))?;
        }
        chart
            .configure_series_labels()
            .position(match self.legend {
                Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
                Corner::UpperRight => SeriesLabelPosition::UpperRight,
                Corner::LowerRight => SeriesLabelPosition::LowerRight,
            })
            .label_font(label)
            .background_style(TRANSPARENT)
            .border_style(TRANSPARENT)
            .draw()
            .map_err(|e| failed(e.to_string()))?;
        area.present().map_err(|e| failed(e.to_string()))
    }
}

/// With some room beyond the smallest and the largest, and never so near that a tenth more looks like a mountain.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    const ROOM: f64 = 1.3;
    const SPAN_MIN: f64 = 20.0;
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    values.for_each(|value| (min, max) = (min.min(value), max.max(value)));
    (min <= max).then_some(((min / ROOM).min(max / SPAN_MIN), max * ROOM))
}

/// 1000 as `1 k`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        large if large >= 1e6 => (large / 1e6, " M"),
        large if large >= 1e3 => (large / 1e3, " k"),
        small => (small, ""),
    };
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(text, "{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn plot(points: &[(f64, f64)]) -> Plot {
        let line = Line { name: "line".to_owned(), points: points.to_vec() };
        Plot { title: "title".to_owned(), x: "x", y: "y", legend: Corner::UpperLeft, lines: vec![line] }
    }

    #[test]
    fn a_plot_has_its_words_and_both_grounds() {
        let svg = plot(&[(1.0, 10.0), (100.0, 1000.0)]).svg().unwrap();
        for part in ["title", "line", "prefers-color-scheme: dark", "<circle"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // The colour that the style sheet replaces is the one that is drawn with.
        assert!(svg.matches("#3B424A").count() > 1, "{svg}");
    }

    #[test]
    fn what_cannot_be_drawn_is_an_error() {
        assert!(plot(&[]).svg().is_err());
        assert!(plot(&[(1.0, 0.0)]).svg().is_err());
        assert!(plot(&[(1.0, f64::NAN)]).svg().is_err());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.25, 1.0, 1000.0, 1500.0, 2e6].map(short), ["0.25", "1", "1 k", "1.5 k", "2 M"]);
    }
}
