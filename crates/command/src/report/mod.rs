//! One page that shows what a bench measured: tables and plots in a file of HTML that needs nothing
//! else, on a screen, a phone or paper.
//!
//! - this module: the parts of a page. `scale`: axes and their ticks. `plot`: a plot as SVG.
//!   `html`: the page.
//!
//! A page loads nothing. Each plot is drawn twice, wide and narrow, and the page's style shows the
//! one that fits. Only a plot that can be zoomed into is drawn by a script, which is in the page
//! ([`Live`]). The benches' pages have none.

mod html;
mod plot;
mod scale;

pub use plot::LOOKS;
pub use scale::number;

use crate::error::CommandError;
use crate::table::Table;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// A page.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Subject of the measurement.
    pub title: String,
    /// Conditions under which the figures hold: names and values.
    pub conditions: Vec<(String, String)>,
    /// The results, in order.
    pub sections: Vec<Section>,
    /// The script that draws in the places of sections, if there are such places.
    pub live: Option<Live>,
}

/// A script of a page, and the data that it draws.
#[derive(Debug, Clone)]
pub struct Live {
    /// Style beside that of every page.
    pub style: &'static str,
    /// The script.
    pub script: &'static str,
    /// JSON, which the script finds as text of the element `data`.
    pub data: String,
}

/// A part of a page.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Words on its figures; may be empty.
    pub note: String,
    /// Its figures.
    pub table: Option<Table>,
    /// Plots of the figures.
    pub plots: Vec<Plot>,
    /// The name of a place that the page's script draws in.
    pub place: Option<String>,
}

/// A plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// The plot's subject.
    pub title: String,
    /// The axis from left to right.
    pub x: Axis,
    /// The axis from bottom to top.
    pub y: Axis,
    /// Its lines. Each line beyond the eighth looks like an earlier one.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Its quantity with the unit: `frame size (bytes)`.
    pub label: String,
    /// The places of values on it.
    pub scale: Scale,
}

/// The places of values on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly; an axis from bottom to top begins at zero.
    Linear,
    /// By their logarithm. A value that is not above zero is not shown.
    Log,
    /// Parts of all samples, 0 to 1, by the logarithm of the part above, as in HdrHistogram's
    /// plotter: 0.9, 0.99 and 0.999 are equally far apart.
    Percentile,
}

/// A line of a plot.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points, in order.
    pub points: Vec<(f64, f64)>,
    /// Interval of each point's value, low and high. Empty if the intervals are not known.
    pub intervals: Vec<(f64, f64)>,
}

/// Returns the conditions that every page has: the program, its command line, and the time.
pub fn of_this_run() -> Vec<(String, String)> {
    let mut now = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    let words = std::env::args().skip(1).map(|word| match word.contains(char::is_whitespace) {
        true => format!("'{word}'"),
        false => word,
    });
    let words: Vec<_> = words.collect();
    // Keeps 2026-01-31T12:00, without the rest.
    let minute = now.get(..16).unwrap_or(&now).replace('T', " ");
    [
        ("version", format!("grantway {}", crate::VERSION)),
        ("command line", format!("grantway {}", words.join(" "))),
        ("date", format!("{minute} UTC")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// The path of a page, which is known to be writable before anything is measured.
pub struct Destination(PathBuf);

impl Destination {
    /// Checks that a file can be made at `path`. The file that is made for the check is removed, so
    /// that nothing stays if a bench is killed.
    ///
    /// # Errors
    ///
    /// The folder is missing or cannot be written to.
    pub fn at(path: &Path) -> Result<Self, CommandError> {
        let place = Self(path.to_owned());
        place.file().map_err(|e| failed(path, &e))?;
        Ok(place)
    }

    /// Makes a file beside the page's path, so that the page is never there in part.
    fn file(&self) -> std::io::Result<NamedTempFile> {
        let Self(path) = self;
        if path.file_name().is_none() || path.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        tempfile::Builder::new()
            .prefix(".grantway-report-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
    }

    /// Puts the page at its path, in place of an earlier one.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(self, report: &Report) -> Result<(), CommandError> {
        let page = html::page(report);
        let written = self.file().and_then(|mut file| {
            file.write_all(page.as_bytes())?;
            file.persist(&self.0)?;
            Ok(())
        });
        written.map_err(|e| failed(&self.0, &e))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!(
        "--report {}: {error}; expected a file in a writable directory",
        path.display()
    ))
}

#[cfg(test)]
mod tests;
