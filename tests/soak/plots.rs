//! The pictures of a report: how a run went, second by second.

use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, RGBColor, Rectangle, SVGBackend, TRANSPARENT,
};

use crate::{
    AnyError,
    run::{Outcome, Sample},
};

const SIZE: (u32, u32) = (900, 320);
const LINE: RGBColor = RGBColor(0x22, 0x8b, 0xe6);
const INK: RGBColor = RGBColor(0x6b, 0x74, 0x7e);
const AWAY: RGBColor = RGBColor(0xd6, 0x33, 0x6c);

/// One of them.
#[derive(Debug)]
pub(crate) struct Plot {
    /// The name of its file.
    pub(crate) file: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) svg: String,
}

/// What came out in each second, and what was on its way; red where a server was away.
pub(crate) fn plots(title: &str, outcome: &Outcome) -> Result<[Plot; 2], AnyError> {
    let plot = |file, shows: &'static str, points| {
        let svg = drawn(&format!("{title}: {shows}"), points, outcome)?;
        Ok::<_, AnyError>(Plot { file, shows, svg })
    };
    Ok([
        plot("throughput.svg", "messages a second", throughput(outcome))?,
        plot("backlog.svg", "steps on their way", on_their_way(outcome))?,
    ])
}

fn throughput(outcome: &Outcome) -> Vec<(f64, f64)> {
    let pairs = outcome.samples.windows(2);
    let a_second = |pair: &[Sample]| {
        let seconds = (pair[1].at - pair[0].at).as_secs_f64().max(f64::EPSILON);
        (pair[1].at.as_secs_f64(), (pair[1].out - pair[0].out) as f64 / seconds)
    };
    pairs.map(a_second).collect()
}

fn on_their_way(outcome: &Outcome) -> Vec<(f64, f64)> {
    outcome.samples.iter().map(|sample| (sample.at.as_secs_f64(), sample.on_their_way as f64)).collect()
}

fn drawn(caption: &str, points: Vec<(f64, f64)>, outcome: &Outcome) -> Result<String, AnyError> {
    let end = outcome.samples.last().map_or(1.0, |sample| sample.at.as_secs_f64());
    let most = points.iter().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let failed = |e: &dyn std::fmt::Display| AnyError::from(e.to_string());
        let label = ("sans-serif", 13).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .caption(caption, ("sans-serif", 18).into_font().color(&INK))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..most)
            .map_err(|e| failed(&e))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.2))
            .axis_style(INK)
            .label_style(label)
            .x_desc("seconds")
            .draw()
            .map_err(|e| failed(&e))?;
        let away = away(outcome)
            .into_iter()
            .map(|(from, to)| Rectangle::new([(from, 0.0), (to.min(end), most)], AWAY.mix(0.15).filled()));
        chart.draw_series(away).map_err(|e| failed(&e))?;
        chart.draw_series(LineSeries::new(points, LINE.stroke_width(1))).map_err(|e| failed(&e))?;
        area.present().map_err(|e| failed(&e))?;
    }
    Ok(text)
}

/// When a server was away, from and to, in seconds.
fn away(outcome: &Outcome) -> Vec<(f64, f64)> {
    let mut spans = Vec::new();
    for side in ["store", "transport"] {
        let (killed, back) = (format!("the {side} is killed"), format!("the {side} answers again"));
        let mut since = None;
        for event in &outcome.events {
            if event.what == killed {
                since = Some(event.at.as_secs_f64());
            } else if event.what == back {
                spans.extend(since.take().map(|from| (from, event.at.as_secs_f64())));
            }
        }
    }
    spans
}
