//! The page around tables and plots.

use super::plot::{LOOKS, Width, marker, svg};
use super::{Plot, Report, Section};
use crate::table::Table;
use std::fmt::Write;

/// Colours and sizes, and their differences on a phone and on paper.
const STYLE: &str = include_str!("style.css");

/// A condition of more characters than this has a line to itself.
const LONG: usize = 32;

/// Returns the whole page.
pub fn page(report: &Report) -> String {
    let title = escape(&report.title);
    let (scripts, style) = match &report.live {
        Some(live) => ("; script-src 'unsafe-inline'", live.style),
        None => ("", ""),
    };
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'{scripts}\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{style}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n<dl>\n"
    );
    for (name, value) in &report.conditions {
        // Writing to a string cannot fail, here and below.
        let class = if value.chars().count() > LONG { " class=\"long\"" } else { "" };
        let (name, value) = (escape(name), escape(value));
        let _ = writeln!(out, "<div{class}><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>\n");
    let looks = Looks::of(report);
    report.sections.iter().for_each(|section| self::section(&mut out, section, &looks));
    out.push_str("</main>\n");
    if let Some(live) = &report.live {
        // No text within the data may end its element.
        let data = live.data.replace('<', "\\u003c");
        let _ = writeln!(out, "<script type=\"application/json\" id=\"data\">{data}</script>");
        let _ = writeln!(out, "<script>\n{}</script>", live.script);
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// The looks of lines: all lines of one name look alike in all plots of a page.
pub struct Looks<'a>(Vec<&'a str>);

impl<'a> Looks<'a> {
    fn of(report: &'a Report) -> Self {
        Self::of_plots(report.sections.iter().flat_map(|section| &section.plots))
    }

    /// Returns the looks of some plots, in the order of their lines.
    pub fn of_plots(plots: impl IntoIterator<Item = &'a Plot>) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for series in plots.into_iter().flat_map(|plot| &plot.series) {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        Self(names)
    }

    /// Returns the number of the look that a name has.
    pub fn find(&self, name: &str) -> usize {
        self.0.iter().position(|known| *known == name).unwrap_or(0) % LOOKS
    }
}

fn section(out: &mut String, section: &Section, looks: &Looks<'_>) {
    let _ = writeln!(out, "<section>\n<h2>{}</h2>", escape(&section.heading));
    if !section.note.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(&section.note));
    }
    section.plots.iter().for_each(|plot| figure(out, plot, looks));
    section.table.iter().for_each(|table| self::table(out, table));
    if let Some(place) = &section.place {
        let _ = writeln!(
            out,
            "<div class=\"live\" data-place=\"{}\"><p class=\"none\">The plots of this page need \
             JavaScript.</p></div>",
            escape(place)
        );
    }
    out.push_str("</section>\n");
}

/// Writes a plot with its title and its legend.
fn figure(out: &mut String, plot: &Plot, looks: &Looks<'_>) {
    let _ = writeln!(out, "<figure>\n<figcaption>{}</figcaption>", escape(&plot.title));
    let drawn = [Width::Wide, Width::Narrow].map(|width| svg(plot, width, looks));
    let [Some(wide), Some(narrow)] = drawn else {
        out.push_str("<p class=\"none\">No data to draw.</p>\n</figure>\n");
        return;
    };
    out.push_str("<ul class=\"legend\">\n");
    for series in &plot.series {
        let look = looks.find(&series.name);
        let _ = writeln!(
            out,
            "<li><svg class=\"key s{look}\" viewBox=\"0 0 34 14\" aria-hidden=\"true\">\
             <path class=\"line\" d=\"M1 7H33\"/>{}</svg>{}</li>",
            marker(look, 17.0, 7.0),
            escape(&series.name)
        );
    }
    out.push_str("</ul>\n");
    out.push_str(&wide);
    out.push_str(&narrow);
    out.push_str("</figure>\n");
}

/// Writes a table in a box of its own, within which it scrolls.
fn table(out: &mut String, table: &Table) {
    // Keys have to reach a box that scrolls, too.
    out.push_str("<div class=\"box\" tabindex=\"0\">\n<table>\n<thead><tr>");
    let class = |number| if number { " class=\"n\"" } else { "" };
    for (heading, number) in table.headings() {
        // A heading may have several lines, but none is to end within a word.
        let heading = escape(heading).replace('-', "\u{2011}");
        let _ = write!(out, "<th scope=\"col\"{}>{heading}</th>", class(number));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in table.rows() {
        out.push_str("<tr>");
        for (at, (_, number)) in table.headings().enumerate() {
            let cell = row.get(at).map_or("", String::as_str);
            let _ = write!(out, "<td{}>{}</td>", class(number), escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Returns a text that no browser takes for markup.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' && c != '\t' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
