//! `grantway bench vector`: one graph, fed frame by frame and in lists.
//!
//! - [`args`]: the command line; [`case`]: rules and frames; [`measure`](mod@measure): slices;
//!   [`page`]: the report. [`nftables`]: the comparison with the kernel's rules.
//! - [`count`]: the graph alone, for counters of instructions.

pub mod args;
mod case;
pub mod count;
pub(crate) mod measure;
mod nftables;
mod page;

use super::document::{self, Column, Document, Shown};
use super::probe::{Machine, State};
use super::progress::Progress;
use super::slices::Timing;
use super::stats::Ratio;
use args::VectorArgs;
use case::{Case, Feed, Load, Traffic};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::report::Destination;
use measure::measure;
use serde::Serialize;

/// Figures of one case with lists of one length.
#[derive(Debug, Clone, Serialize)]
struct Row {
    /// Name of the case.
    case: String,
    /// Number of rules or exact keys; `None` for a case without either.
    rules: Option<usize>,
    /// Number of frames at a time.
    list: usize,
    /// Nanoseconds per frame.
    ns_per_packet: f64,
    /// Millions of frames per second.
    mpps: f64,
    /// Ratio of the rate to the rate with lists of one frame; `None` if no pair of slices was in
    /// one state.
    gain: Option<Ratio>,
    /// Ratio of the time per frame to that of the group's first case, with lists of equal length.
    cost: Option<Ratio>,
    /// Gain of the paper by lists, in percent.
    seed_percent: Option<f64>,
    /// Host that the row was measured on: none.
    host: &'static str,
    /// State of the machine, and the round trip of a cache line.
    #[serde(flatten)]
    machine: Machine,
    /// Number of slices.
    n: usize,
}

impl document::Row for Row {
    fn host(&self) -> &str {
        self.host
    }

    fn state(&self) -> State {
        self.machine.state
    }
}

const COLUMNS: [Column<Row>; 9] = {
    use Shown::{Always, Filled};
    [
        Column::of("case", Always, |r| r.case.clone()),
        Column::of("list#", Always, |r| r.list.to_string()),
        Column::of("ns/packet#", Always, |r| format!("{:.1}", r.ns_per_packet)),
        Column::of("Mpps#", Always, |r| format!("{:.1}", r.mpps)),
        Column::of("gain#", Always, |r| ratio(r.gain)),
        Column::of("cost#", Filled, |r| r.cost.map_or(String::new(), |cost| cost.text())),
        Column::of("paper#", Filled, |r| {
            r.seed_percent.map_or(String::new(), |percent| format!("{:.2}", 1.0 + percent / 100.0))
        }),
        Column::of("state ns", Always, |r| r.machine.words()),
        Column::of("n#", Always, |r| r.n.to_string()),
    ]
};

/// The conditions of the measurement.
const SETTING: &str = "one thread, no guest, UDP of 60 bytes";

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or("-".to_owned(), |ratio| ratio.text())
}

/// Cases that are compared with each other.
struct Group {
    cases: Vec<Case>,
    /// True if the costs of the cases are compared.
    costs: bool,
}

fn groups(args: &VectorArgs) -> Vec<Group> {
    let many = Traffic::Flows(4096);
    let mut groups = Vec::new();
    if let Some(rules) = &args.rules {
        let one = |&n: &usize| Case::new(&format!("{n} rules"), Load::Rules(n), many, None);
        groups.push(Group { cases: rules.0.iter().map(one).collect(), costs: true });
    }
    if let Some(filters) = &args.filters {
        let one = |&n: &usize| match n {
            0 => Case::new("32 masks", Load::Masks(32), many, None),
            n => Case::new(&format!("{n} exact keys"), Load::Keys(n), many, None),
        };
        groups.push(Group { cases: filters.0.iter().map(one).collect(), costs: true });
    }
    if groups.is_empty() {
        let split = Case::new("split at every node", Load::OneRule, Traffic::Split, None);
        let cases = paper_cases().into_iter().chain([split]);
        groups.extend(cases.map(|case| Group { cases: vec![case], costs: false }));
    }
    groups
}

/// Returns the cases of the paper on lists.
fn paper_cases() -> [Case; 4] {
    let four = Traffic::Flows(4);
    [
        Case::new("four streams", Load::Nothing, four, Some(22.5)),
        Case::new("one firewall rule", Load::OneRule, four, Some(35.1)),
        Case::new("flower filters", Load::Flower, four, Some(29.7)),
        Case::new("one stream", Load::Nothing, Traffic::Flows(1), Some(4.0)),
    ]
}

/// Figures of one case, one by one and in lists.
pub struct Against {
    /// Millions of frames per second, one by one and in lists.
    pub mpps: [f64; 2],
    /// Ratio of the rate in lists to one by one; `None` if no pair of slices was in one state.
    pub gain: Option<Ratio>,
    /// Number of slices.
    pub n: usize,
}

/// Measures the paper's case of this name one by one and in lists of `list` frames.
///
/// # Errors
///
/// There is no case of this name, or its rules cannot be compiled.
pub fn lists_against_one(
    name: &str,
    list: usize,
    timing: Timing,
    progress: &mut dyn FnMut(f64),
) -> Result<Against, CommandError> {
    let cases: Vec<_> = paper_cases().into_iter().filter(|case| case.name == name).collect();
    let group = Group { cases, costs: false };
    match &rows(&group, &[1, list], timing, progress)?[..] {
        [one, many] => Ok(Against { mpps: [one.mpps, many.mpps], gain: many.gain, n: many.n }),
        _ => Err(CommandError::Failed(format!("no case {name}"))),
    }
}

/// Runs the command.
///
/// # Errors
///
/// The rules of a case cannot be compiled, or the output cannot be written.
pub fn run(args: &VectorArgs) -> Result<(), CommandError> {
    let timing = Timing::short(args.seconds, args.pairs)?;
    let mut lists = args.list.0.clone();
    if !lists.contains(&1) {
        lists.insert(0, 1);
    }
    let page = args.output.report.as_deref().map(Destination::at).transpose()?;
    if args.nftables {
        return nftables::run(args, &lists, timing, page);
    }
    let groups = groups(args);
    let progress = Progress::new(groups.len(), args.output.json);
    let mut rows = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let names: Vec<_> = group.cases.iter().map(|case| case.name.as_str()).collect();
        let what = names.join(", ");
        rows.extend(self::rows(group, &lists, timing, &mut |part| {
            progress.show(number, &what, part)
        })?);
    }
    progress.done();
    if let Some(page) = page {
        page.write(&page::of(&rows))?;
    }
    match args.output.json {
        true => Document::new("vector", &rows).print(),
        false => output::line(format!("{SETTING}\n\n{}", document::table(&rows, &COLUMNS))),
    }
}

/// Measures all cases of a group with lists of all lengths, in turns. Returns the rows.
fn rows(
    group: &Group,
    lists: &[usize],
    timing: Timing,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Row>, CommandError> {
    let points: Vec<(&Case, usize)> =
        group.cases.iter().flat_map(|case| lists.iter().map(move |&list| (case, list))).collect();
    let feed = |&(case, list): &(&Case, usize)| Ok(Box::new(Feed::new(case, list)?) as _);
    let mut feeds: Vec<_> = points.iter().map(feed).collect::<Result<_, CommandError>>()?;
    let series = measure(&mut feeds, timing, progress)?;
    let one = lists.iter().position(|&list| list == 1).unwrap_or(0);
    let row = |(subject, &(case, list)): (usize, &(&Case, usize))| {
        let (ns, machine, n) = series.typical(subject);
        let by_one = subject - subject % lists.len() + one;
        let first = subject % lists.len();
        Row {
            case: case.name.clone(),
            rules: case.load.size(),
            list,
            ns_per_packet: ns,
            mpps: 1e3 / ns,
            gain: Ratio::of(&series.ratios(subject, by_one, |&ns| 1.0 / ns)),
            cost: match group.costs {
                true => Ratio::of(&series.ratios(subject, first, |&ns| ns)),
                false => None,
            },
            seed_percent: case.paper,
            host: "none",
            machine,
            n,
        }
    };
    Ok(points.iter().enumerate().map(row).collect())
}
