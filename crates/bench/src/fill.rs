//! Parts of a page, made of the rows of a bench.

use crate::document::{self, Column, Row};
use grantway_command::report::{Axis, LOOKS, Plot, Scale, Series, of_this_run};

/// Rules by which rows become the lines of plots.
pub struct Lines<R: 'static> {
    /// Title of the plots: `Mpps over frame size`.
    pub title: &'static str,
    /// Horizontal axis.
    pub x: (&'static str, Scale),
    /// Vertical axis.
    pub y: (&'static str, Scale),
    /// Values that the rows of one plot have in common, in words: `burst 32`.
    pub common: &'static [fn(&R) -> String],
    /// Policy and mode, which a line is named by. If that makes more lines than can be told apart,
    /// each mode has plots of its own.
    pub names: [fn(&R) -> String; 2],
    /// Adds the values of a row to its line.
    pub add: fn(&R, &mut Series),
}

impl<R: 'static> Lines<R> {
    /// Returns the plots of these rows. The rows of each line must be in order.
    pub fn plots(&self, rows: &[R]) -> Vec<Plot> {
        let [policy, mode] = self.names;
        let [policies, modes] = self.names.map(|name| document::different(rows, name).len());
        let crowded = policies * modes > LOOKS;
        let varies = |part: &&fn(&R) -> String| document::different(rows, **part).len() > 1;
        let common: Vec<_> = self.common.iter().filter(varies).collect();
        let mut plots: Vec<Plot> = Vec::new();
        for row in rows {
            let mut title = vec![self.title.to_owned()];
            title.extend(common.iter().map(|part| part(row)));
            let mut name = policy(row);
            match crowded {
                true => title.push(mode(row)),
                false if modes > 1 => name += &format!(", {}", mode(row)),
                false => {}
            }
            let title = title.join(", ");
            let plot = entry(&mut plots, |plot| plot.title == title, || self.plot(&title));
            let new = || Series { name: name.clone(), ..Series::default() };
            (self.add)(row, entry(&mut plot.series, |line| line.name == name, new));
        }
        plots
    }

    fn plot(&self, title: &str) -> Plot {
        let axis = |(label, scale): (&str, Scale)| Axis { label: label.to_owned(), scale };
        Plot { title: title.to_owned(), x: axis(self.x), y: axis(self.y), series: Vec::new() }
    }
}

/// Returns the first element for which `is` is true. If there is none, adds a new one at the end,
/// and returns it.
fn entry<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is).unwrap_or(list.len());
    if at == list.len() {
        list.push(new());
    }
    &mut list[at]
}

/// Returns true if the points of a plot have more than one place on the horizontal axis.
pub fn has_width(plot: &Plot) -> bool {
    let mut places = plot.series.iter().flat_map(|line| &line.points).map(|(x, _)| x);
    places.next().is_some_and(|first| places.any(|x| x != first))
}

/// Returns the conditions of a page: those of its rows, the bench's `own`, and those of this run.
pub fn conditions<R: Row>(
    rows: &[R],
    columns: &[Column<R>],
    own: &[(&str, String)],
) -> Vec<(String, String)> {
    let host = rows.first().map(|row| row.host().to_owned()).unwrap_or_default();
    let state = document::different(rows, |row| row.state().as_str().to_owned()).join(", ");
    let mut all = vec![("host".to_owned(), host), ("state".to_owned(), state)];
    all.extend(document::varying(rows, columns).map(|(name, values)| (name, values.join(", "))));
    all.extend(own.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    all.retain(|(_, value)| !value.is_empty());
    all.extend(of_this_run());
    all
}

/// Returns the number of slices per row in words: `20 slices per row`, or `18 to 20 slices per
/// row`.
pub fn slices(counts: impl Iterator<Item = usize> + Clone) -> String {
    match (counts.clone().min(), counts.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most} slices per row"),
        (Some(1), _) => "1 slice per row".to_owned(),
        (Some(all), _) => format!("{all} slices per row"),
        (None, _) => String::new(),
    }
}

/// Returns the words as a heading, with a capital letter.
pub fn heading(words: &str) -> String {
    words.chars().take(1).flat_map(char::to_uppercase).chain(words.chars().skip(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: [&str; 4] = ["copy", "map", "persistent", "staging"];

    /// Mode, policy, load, wake-ups.
    type Line = (&'static str, &'static str, f64, f64);

    const BY_LOAD: Lines<Line> = Lines {
        title: "Wake-ups",
        x: ("load", Scale::Log),
        y: ("wake-ups", Scale::Linear),
        common: &[|row| format!("load {}", row.2)],
        names: [|row| row.1.into(), |row| row.0.into()],
        add: |row, line| line.points.push((row.2, row.3)),
    };

    #[test]
    fn rows_become_lines() {
        let over_load = Lines { common: &[], ..BY_LOAD };
        let rows =
            [("busy", "copy", 1.0, 0.0), ("busy", "map", 1.0, 0.0), ("busy", "copy", 2.0, 1.0)];
        let plots = over_load.plots(&rows);
        let [plot] = &plots[..] else { panic!("{plots:?}") };
        let names: Vec<_> = plot.series.iter().map(|line| line.name.as_str()).collect();
        assert_eq!((plot.title.as_str(), &names[..]), ("Wake-ups", &["copy", "map"][..]));
        assert_eq!(plot.series[0].points, [(1.0, 0.0), (2.0, 1.0)]);
        assert!(has_width(plot));
        // A value that is equal within each plot makes one plot for each of its values.
        let titles: Vec<_> = BY_LOAD.plots(&rows).into_iter().map(|plot| plot.title).collect();
        assert_eq!(titles, ["Wake-ups, load 1", "Wake-ups, load 2"]);
        assert!(BY_LOAD.plots(&rows).iter().all(|plot| !has_width(plot)), "single points");
    }

    #[test]
    fn lines_that_look_alike_are_never_in_one_plot() {
        let over_load = Lines { common: &[], ..BY_LOAD };
        let rows = |modes: &[&'static str]| -> Vec<Line> {
            let of = |mode| POLICIES.iter().map(move |&policy| (mode, policy, 1.0, 1.0));
            modes.iter().flat_map(|&mode| of(mode)).collect()
        };
        let two = over_load.plots(&rows(&["busy", "interrupt"]));
        assert_eq!((two.len(), two[0].series.len()), (1, 8));
        assert_eq!(two[0].series[4].name, "copy, interrupt");
        let three = over_load.plots(&rows(&["busy", "adaptive", "interrupt"]));
        let titles: Vec<_> = three.iter().map(|plot| plot.title.as_str()).collect();
        assert_eq!(titles, ["Wake-ups, busy", "Wake-ups, adaptive", "Wake-ups, interrupt"]);
        assert!(three.iter().all(|plot| plot.series.len() == 4 && plot.series[0].name == "copy"));
    }
}
