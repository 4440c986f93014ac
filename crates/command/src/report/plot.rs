//! A plot as SVG. The page decides about colours: shapes have classes, and no colour of their own.

use super::html::{Looks, escape};
use super::scale::{Ruler, Tick};
use super::{Plot, Series};
use std::fmt::Write;

/// Number of looks of lines. The style has the colour and dash of each look, by its number. The
/// shape of the marker is drawn here.
pub const LOOKS: usize = 8;
/// Most points that all have a marker. Of more points only some have one.
const MARKED: usize = 16;
/// Height of a line of text.
const LINE: f64 = 15.0;
/// Rough width of a character, and below it of a character of a name, which is bold.
const CHARACTER: f64 = 6.9;
const BOLD: f64 = 7.9;
/// The longest name beside a line, in characters.
const NAME_MAX: usize = 24;

/// The medium that a plot is shown on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A screen or paper: 760 units, names beside the lines.
    Wide,
    /// A phone: 360 units.
    Narrow,
}

impl Width {
    fn size(self) -> (f64, f64) {
        match self {
            Self::Wide => (760.0, 400.0),
            Self::Narrow => (360.0, 300.0),
        }
    }
}

/// The area of lines, in units from the left and the top.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Returns the plot. Returns none if there is nothing to draw.
pub fn svg(plot: &Plot, width: Width, looks: &Looks<'_>) -> Option<String> {
    let (w, h) = width.size();
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let xs: Vec<f64> = points().map(|(x, _)| *x).collect();
    let highs = plot.series.iter().flat_map(|s| s.intervals.iter().flat_map(|(l, h)| [*l, *h]));
    let ys: Vec<f64> = points().map(|(_, y)| *y).chain(highs).collect();
    let (top, bottom) = (34.0, h - 46.0);
    let y = Ruler::upwards(plot.y.scale, &ys, (bottom, top))?;
    // The labels of the ticks need room at the left, and names at the right.
    let y_ticks = y.ticks(if width == Width::Wide { 6.0 } else { 5.0 });
    let widest = y_ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0);
    let names = plot.series.iter().map(|series| shown(&series.name).chars().count()).max();
    let beside = match width {
        Width::Wide => names.unwrap_or(0) as f64 * BOLD + 20.0,
        Width::Narrow => 14.0,
    };
    let area = Area { left: 16.0 + widest as f64 * CHARACTER, right: w - beside, top, bottom };
    // The width is known now, and the number of ticks depends on it.
    let x = Ruler::across(plot.x.scale, &xs, (area.left + 12.0, area.right - 8.0))?;
    let wanted = (area.right - area.left) / 80.0;
    let mut out = format!(
        "<svg class=\"plot {}\" viewBox=\"0 0 {w} {h}\" role=\"img\" aria-label=\"{}\">\n",
        if width == Width::Wide { "wide" } else { "narrow" },
        escape(&plot.title)
    );
    axes(&mut out, plot, &area, &x.ticks(wanted), &y_ticks);
    for series in &plot.series {
        line(&mut out, looks.find(&series.name), series, &x, &y);
    }
    if width == Width::Wide {
        names_beside(&mut out, plot, looks, &area, (&x, &y));
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// Writes the grid, the ticks and the labels of the axes.
fn axes(out: &mut String, plot: &Plot, area: &Area, x_ticks: &[Tick], y_ticks: &[Tick]) {
    let Area { left, right, top, bottom } = *area;
    let mut add = |text: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = out.write_fmt(text);
        out.push('\n');
    };
    for Tick { at, label } in y_ticks {
        add(format_args!(
            "<path class=\"grid\" d=\"M{left:.1} {at:.1}H{right:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            at + 4.0,
            escape(label)
        ));
    }
    let named = apart(x_ticks);
    for (Tick { at, label }, named) in x_ticks.iter().zip(named) {
        add(format_args!("<path class=\"grid\" d=\"M{at:.1} {top:.1}V{:.1}\"/>", bottom + 4.0));
        if named {
            add(format_args!(
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 19.0,
                escape(label)
            ));
        }
    }
    // The axes themselves and their labels.
    add(format_args!("<path class=\"axis\" d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\"/>"));
    add(format_args!("<text class=\"label\" x=\"4\" y=\"16\">{}</text>", escape(&plot.y.label)));
    add(format_args!(
        "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        (left + right) / 2.0,
        bottom + 39.0,
        escape(&plot.x.label)
    ));
}

/// Returns a flag for each tick: true if there is room for its name. The first and the last have a
/// name, and each tick between whose name touches no other.
fn apart(ticks: &[Tick]) -> Vec<bool> {
    let half = |tick: &Tick| tick.label.chars().count() as f64 * CHARACTER / 2.0 + 5.0;
    let last = ticks.len().saturating_sub(1);
    let before_last = ticks.last().map_or(0.0, |tick| tick.at - half(tick));
    let mut free = f64::MIN;
    let mut named = Vec::new();
    for (number, tick) in ticks.iter().enumerate() {
        let (from, to) = (tick.at - half(tick), tick.at + half(tick));
        let fits = number == last || number == 0 || (from >= free && to <= before_last);
        named.push(fits);
        if fits {
            free = to;
        }
    }
    named
}

/// Writes a line, its markers, and the intervals of its points.
fn line(out: &mut String, look: usize, series: &Series, x: &Ruler, y: &Ruler) {
    let place = |&(px, py): &(f64, f64)| Some((x.at(px)?, y.at(py)?));
    let places: Vec<Option<(f64, f64)>> = series.points.iter().map(place).collect();
    let _ = writeln!(out, "<g class=\"s{look}\">");
    let mut path = String::new();
    let mut drawing = false;
    for at in &places {
        // A point that cannot be shown leaves a gap.
        if let Some((px, py)) = at {
            let _ = write!(path, "{}{px:.1} {py:.1}", if drawing { 'L' } else { 'M' });
        }
        drawing = at.is_some();
    }
    let _ = writeln!(out, "<path class=\"line\" d=\"{path}\"/>");
    // Intervals lie a little beside the point, so that lines that meet can be told apart.
    let aside = ((look % 4) as f64 - 1.5) * 2.5;
    for (at, &(low, high)) in places.iter().zip(&series.intervals) {
        let (Some((px, _)), Some(low), Some(high)) = (at, y.at(low), y.at(high)) else { continue };
        let _ = writeln!(
            out,
            "<path class=\"bar\" d=\"M{px:.1} {low:.1}V{high:.1}M{l:.1} {low:.1}h8M{l:.1} {high:.1}h8\"/>",
            px = px + aside,
            l = px + aside - 4.0
        );
    }
    let every = places.len().div_ceil(MARKED).max(1);
    // Markers of several lines must not lie upon each other.
    let marked = places.iter().skip(if every > 1 { look % every } else { 0 }).step_by(every);
    for (px, py) in marked.flatten() {
        let _ = writeln!(out, "{}", marker(look, *px, *py));
    }
    out.push_str("</g>\n");
}

/// Returns the marker of a look, as a shape.
pub fn marker(look: usize, x: f64, y: f64) -> String {
    let shape = match look % LOOKS {
        0 => return format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => "m-3.6 -3.6h7.2v7.2h-7.2z",
        2 => "m0 -4.8l4.6 8h-9.2z",
        3 => "m0 -5.2l5.2 5.2l-5.2 5.2l-5.2 -5.2z",
        4 => "m0 4.8l4.6 -8h-9.2z",
        5 => "m-1.4 -4.6h2.8v3.2h3.2v2.8h-3.2v3.2h-2.8v-3.2h-3.2v-2.8h3.2z",
        6 => "m-4.4 -4.4l8.8 8.8h-8.8l8.8 -8.8z",
        _ => "m-5 0l2.5 -4.3h5l2.5 4.3l-2.5 4.3h-5z",
    };
    format!("<path class=\"mark\" d=\"M{x:.1} {y:.1}{shape}\"/>")
}

/// Writes each line's name, at the height at which the line ends.
fn names_beside(
    out: &mut String,
    plot: &Plot,
    looks: &Looks<'_>,
    area: &Area,
    (x, y): (&Ruler, &Ruler),
) {
    let ends = plot.series.iter().filter_map(|series| {
        let at = series.points.iter().rev().find_map(|&(px, py)| Some((x.at(px)?, y.at(py)?)));
        at.map(|(px, py)| (series, px, py))
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by(|a, b| a.2.total_cmp(&b.2));
    let wanted: Vec<f64> = ends.iter().map(|(.., py)| *py).collect();
    let heights = spread(&wanted, area.top, area.bottom);
    for ((series, px, py), at) in ends.into_iter().zip(heights) {
        let (from, to) = (px + 6.0, area.right + 8.0);
        let _ = writeln!(
            out,
            "<g class=\"s{}\"><path class=\"lead\" d=\"M{from:.1} {py:.1}L{to:.1} {at:.1}\"/>\
             <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            looks.find(&series.name),
            to + 3.0,
            at + 4.0,
            escape(&shown(&series.name))
        );
    }
}

/// Returns heights that are as near as possible to the wanted ones, in order, and a line of text
/// apart.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut heights = Vec::new();
    let mut least = top;
    for &at in wanted {
        heights.push(at.max(least));
        least = at.max(least) + LINE;
    }
    // A name that was pushed below the end goes up again, and moves others before it.
    let mut most = bottom;
    for at in heights.iter_mut().rev() {
        *at = at.min(most);
        most = *at - LINE;
    }
    heights
}

/// Returns a name, cut so that it fits beside a line.
fn shown(name: &str) -> String {
    match name.char_indices().nth(NAME_MAX) {
        None => name.to_owned(),
        Some(_) => name.chars().take(NAME_MAX - 1).chain(['\u{2026}']).collect(),
    }
}
