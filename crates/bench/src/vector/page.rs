//! The report: the rows as a page.

use super::{COLUMNS, Row, SETTING, nftables};
use crate::document;
use crate::fill::{Lines, conditions, has_width, slices};
use grantway_command::report::{Plot, Report, Scale, Section};

const GAIN: Lines<Row> = Lines {
    title: "Gain over list length",
    x: ("frames per list", Scale::Log),
    y: ("packets per second, relative to lists of one", Scale::Linear),
    common: &[],
    names: [path, |_| String::new()],
    add: |row, line| {
        if let Some(gain) = row.gain {
            line.points.push((row.list as f64, gain.median));
            line.intervals.push((gain.low, gain.high));
        }
    },
};

const OVER_LISTS: Lines<Row> = Lines {
    title: "Time per packet over list length",
    x: ("frames per list", Scale::Log),
    y: ("ns per packet", Scale::Linear),
    common: &[],
    names: [path, |_| String::new()],
    add: |row, line| line.points.push((row.list as f64, row.ns_per_packet)),
};

const OVER_RULES: Lines<Row> = Lines {
    title: "Time per packet over number of rules",
    x: ("rules", Scale::Log),
    y: ("ns per packet", Scale::Linear),
    common: &[],
    names: [list, |_| String::new()],
    add: |row, line| line.points.extend(row.rules.map(|n| (n as f64, row.ns_per_packet))),
};

const OVER_KEYS: Lines<Row> = Lines {
    title: "Time per packet over number of exact keys",
    x: ("keys of the classifier", Scale::Log),
    ..OVER_RULES
};

fn path(row: &Row) -> String {
    row.case.clone()
}

fn list(row: &Row) -> String {
    format!("lists of {}", row.list)
}

/// Returns the page of these rows.
pub fn of(rows: &[Row]) -> Report {
    let own = [("n", slices(rows.iter().map(|row| row.n))), ("set-up", SETTING.to_owned())];
    let section = Section {
        heading: "The same graph, one by one and in lists".to_owned(),
        note: "Gain: packets per second relative to lists of one. Cost: time per packet relative \
               to the first row of the group with lists of the same length. Both are medians of \
               pairs of slices of one round, with the 95 % interval in brackets. Paper: gain of \
               lists in the Linux kernel, on the hardware of the paper (paper 002)."
            .to_owned(),
        table: Some(document::table(rows, &COLUMNS)),
        plots: plots(rows),
        ..Section::default()
    };
    Report {
        title: "Grantway: packets one by one and in lists".to_owned(),
        conditions: conditions(rows, &COLUMNS, &own),
        sections: vec![section],
        ..Report::default()
    }
}

/// Returns the plots in which a line has more than one point.
fn plots(rows: &[Row]) -> Vec<Plot> {
    let mut by_lists = rows.to_vec();
    // Lines go from left to right, in whatever order the points were measured.
    by_lists.sort_by_key(|row| row.list);
    let mut plots = [GAIN.plots(&by_lists), OVER_LISTS.plots(&by_lists)].concat();
    for (kind, lines) in [("rules", OVER_RULES), ("keys", OVER_KEYS)] {
        let of_kind = |row: &&Row| row.rules.is_some() && row.case.ends_with(kind);
        let mut rows: Vec<Row> = rows.iter().filter(of_kind).cloned().collect();
        rows.sort_by_key(|row| row.rules);
        plots.extend(lines.plots(&rows));
    }
    plots.retain(has_width);
    plots
}

const BESIDE: Lines<nftables::Row> = Lines {
    title: "Time of the rules over their number",
    x: ("rules", Scale::Log),
    y: ("ns per packet, rules only", Scale::Log),
    common: &[],
    names: [way, |_| String::new()],
    add: |row, line| {
        line.points.extend(row.rules_ns.map(|ns| (row.rules as f64, ns.median)));
    },
};

const WHOLE: Lines<nftables::Row> = Lines {
    title: "Time per packet over number of rules",
    y: ("ns per packet, whole path", Scale::Log),
    add: |row, line| line.points.push((row.rules as f64, row.ns_per_packet)),
    ..BESIDE
};

fn way(row: &nftables::Row) -> String {
    match row.list {
        Some(list) => format!("{}, lists of {list}", row.path),
        None => row.path.to_owned(),
    }
}

/// Returns the page of the comparison with the kernel's rules.
pub fn beside(rows: &[nftables::Row]) -> Report {
    let own =
        [("n", slices(rows.iter().map(|row| row.n))), ("set-up", nftables::SETTING.to_owned())];
    let mut sorted = rows.to_vec();
    sorted.sort_by_key(|row| row.rules);
    let mut plots = [BESIDE.plots(&sorted), WHOLE.plots(&sorted)].concat();
    plots.retain(has_width);
    let section = Section {
        heading: "The same rules in our graph and in the kernel".to_owned(),
        note: "Rules: time per packet beyond that of the same path without rules. Kernel: that \
               time divided by the time of our whole graph. Both are medians of slices of one \
               round, with the 95 % interval in brackets. Fitted: packets that matched a rule. nft \
               checks one rule after the other for each packet; our firewall remembers its verdict \
               per flow. A set of nft is faster, but it rejects rules that overlap partly, as some \
               of these do."
            .to_owned(),
        table: Some(document::table(rows, &nftables::COLUMNS)),
        plots,
        ..Section::default()
    };
    Report {
        title: "Grantway: rules compared with nftables".to_owned(),
        conditions: conditions(rows, &nftables::COLUMNS, &own),
        sections: vec![section],
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Machine;
    use crate::stats::Ratio;

    fn row(case: &str, rules: Option<usize>, list: usize, gain: Option<f64>) -> Row {
        Row {
            case: case.to_owned(),
            rules,
            list,
            ns_per_packet: 100.0,
            mpps: 10.0,
            gain: gain.map(|median| Ratio { median, low: median, high: median, pairs: 3 }),
            cost: None,
            seed_percent: None,
            host: "embedded",
            machine: Machine::SINGLE,
            n: 3,
        }
    }

    fn titles(rows: &[Row]) -> Vec<String> {
        plots(rows).into_iter().map(|plot| plot.title).collect()
    }

    #[test]
    fn a_plot_is_drawn_where_it_has_two_places() {
        let lists = |gain| [row("streams", None, 1, Some(1.0)), row("streams", None, 8, gain)];
        assert_eq!(titles(&lists(Some(2.5))), [GAIN.title, OVER_LISTS.title]);
        assert_eq!(titles(&lists(None)), [OVER_LISTS.title], "no slices in one state");
        let rules = [1, 50].map(|n| row(&format!("{n} rules"), Some(n), 8, Some(1.0)));
        assert_eq!(titles(&rules), [OVER_RULES.title]);
        assert_eq!(titles(&lists(Some(2.5))[..1]), [""; 0]);
    }
}
