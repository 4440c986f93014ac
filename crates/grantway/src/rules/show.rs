//! `grantway rules show` shows the counters of a running backend's rules.

use crate::nodes;
use crate::running::RunningArgs;
use clap::Args;
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::table::Table;
use serde_json::{Value, json};

/// Most characters of a name that are shown.
const NAME_MAX: usize = 40;

/// `grantway rules show`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each frame is counted at the first rule and at the first filter that match it.
When the file is loaded again, rules that keep their names keep their counters.
`grantway show rules` prints the same.

Example:
  grantway rules show
  grantway rules show --host /tmp/gw --json | jq .rules")]
pub struct ShowArgs {
    /// Backend to ask.
    #[command(flatten)]
    pub of: RunningArgs,
}

/// Shows the counters.
///
/// # Errors
///
/// No backend runs in the folder, or it has no rules.
pub fn run(args: &ShowArgs) -> Result<(), CommandError> {
    show(&args.of.fetch()?, args.of.json)
}

/// Shows the counters in a backend's report.
///
/// # Errors
///
/// The backend has no rules.
pub fn show(report: &Value, json: bool) -> Result<(), CommandError> {
    let (file, graph) = (&report["rules"], nodes::of(report)?);
    if file.is_null() {
        return Err(CommandError::Failed(
            "the backend has no rules loaded; start it with --rules FILE".into(),
        ));
    }
    // JSON has the file's state and the graph's counts in one object.
    if json {
        let mut value = file.clone();
        for key in ["rules", "default", "filters", "drops", "connections", "stations", "flows"] {
            value[key] = graph[key].clone();
        }
        value["largest_flows"] = graph["largest_flows"].clone();
        return output::line(value.to_string());
    }
    let mut text = format!("{}\n", told(file));
    // The default is shown as the last rule, since it counts what no rule fits.
    let mut rules = vec![];
    rules.extend(graph["rules"].as_array().into_iter().flatten().cloned());
    let mut default = graph["default"].clone();
    default["name"] = json!("(no rule)");
    rules.push(default);
    text += &table("rule", &rules);
    if let Some(filters) = graph["filters"].as_array().filter(|filters| !filters.is_empty()) {
        text += &format!("\n{}", table("filter", filters));
    }
    text += &nodes::drops(&graph);
    text += &format!(
        "\nstations: {}, connections: {}, flows: {}\n",
        graph["stations"], graph["connections"], graph["flows"]
    );
    output::line(text)
}

fn told(file: &Value) -> String {
    let name = file["file"].as_str().unwrap_or("");
    match file["refused"].as_str() {
        None => format!("{name}: loads: {}", file["loaded"]),
        Some(why) => format!("{name}: loads: {}, last reload failed: {why}", file["loaded"]),
    }
}

fn table(heading: &str, counts: &[Value]) -> String {
    let mut table = Table::new(&[heading, "packets#", "bytes#"]);
    for count in counts {
        let name = count["name"].as_str().unwrap_or("");
        let mut short: String = name.chars().take(NAME_MAX).collect();
        if short.len() < name.len() {
            short.push('\u{2026}');
        }
        table.row([short, count["packets"].to_string(), count["bytes"].to_string()]);
    }
    table.to_string()
}
