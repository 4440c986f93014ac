//! `grantway list` shows the vifs of a host, and the host's tables.

use crate::args::ListArgs;
use grantway_command::control::{backend_socket, fetch};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_command::table::Table;
use grantway_command::toolstack::device::{self, VifRow};
use grantway_command::toolstack::of_host;
use grantway_embedded::Tables;
use grantway_netif::XenbusState;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Shows the vifs, and the host's tables if they are asked for.
///
/// # Errors
///
/// No host serves the folder.
pub fn run(args: &ListArgs) -> Result<(), CommandError> {
    let (host, mut store) = of_host(&args.host)?;
    let vifs = device::list(store.as_mut())?;
    let reports = reports(&args.host, &vifs);
    let tables = host.host_tables()?;
    if args.json {
        let mut value = json!({ "vifs": vifs.iter().map(|v| vif_json(v, &tables, reports.get(&v.vif.to_string()))).collect::<Vec<_>>() });
        if args.tables {
            value["tables"] = serde_json::to_value(&tables).map_err(CommandError::failed)?;
        }
        return output::line(value.to_string());
    }
    let mut text = match vifs.is_empty() {
        true => "no vif is attached; attach one: grantway attach --host DIR --domain 1\n".into(),
        false => vif_table(&vifs, &tables, &reports).to_string(),
    };
    if args.tables {
        text.push('\n');
        text.push_str(&host_tables(&tables));
    }
    output::line(text)
}

/// Returns the backends' reports of these vifs, by vif. A backend that does not run reports
/// nothing.
fn reports(dir: &Path, vifs: &[VifRow]) -> BTreeMap<String, Value> {
    let domains: BTreeSet<u16> = vifs.iter().map(|row| row.backend.0).collect();
    let found = domains.into_iter().filter_map(|domain| fetch(&backend_socket(dir, domain)).ok());
    let vifs = found.flat_map(|mut report| match report["vifs"].take() {
        Value::Array(vifs) => vifs,
        _ => Vec::new(),
    });
    vifs.filter_map(|vif| Some((vif["vif"].as_str()?.to_owned(), vif))).collect()
}

fn vif_table(vifs: &[VifRow], tables: &Tables, reports: &BTreeMap<String, Value>) -> Table {
    let headings = [
        "domain#", "devid#", "mac", "vifname", "backend", "frontend", "pid#", "bridge", "mtu#",
        "policy", "mapped#", "hits#", "misses#",
    ];
    let mut table = Table::new(&headings);
    for row in vifs {
        let report = reports.get(&row.vif.to_string()).unwrap_or(&Value::Null);
        let number = |value: &Value| or_dash(value.as_u64());
        table.row([
            row.vif.domain.to_string(),
            row.vif.devid.to_string(),
            or_dash(row.mac.as_ref()),
            row.vifname.clone().unwrap_or_else(|| row.vif.to_string()),
            or_dash(row.backend_state),
            or_dash(row.frontend_state),
            or_dash(pid(row, tables)),
            or_dash(row.bridge.as_ref()),
            or_dash(row.mtu.as_ref()),
            or_dash(report["policy"].as_str()),
            number(&report["mapped"]),
            number(&report["stats"]["mapped_hits"]),
            number(&report["stats"]["mapped_misses"]),
        ]);
    }
    table
}

fn vif_json(row: &VifRow, tables: &Tables, report: Option<&Value>) -> Value {
    let report = report.unwrap_or(&Value::Null);
    let state = |state: Option<XenbusState>| state.map(XenbusState::name);
    json!({
        "vif": row.vif.to_string(),
        "domain": row.vif.domain.0,
        "devid": row.vif.devid,
        "mac": row.mac,
        "vifname": row.vifname,
        "backend_domain": row.backend.0,
        "backend_state": state(row.backend_state),
        "frontend_state": state(row.frontend_state),
        "pid": pid(row, tables),
        "bridge": row.bridge,
        "mtu": row.mtu.as_deref().and_then(|mtu| mtu.parse::<u32>().ok()),
        "rate": row.rate,
        "policy": report["policy"],
        "mapped": report["mapped"],
        "mapped_hits": report["stats"]["mapped_hits"],
        "mapped_misses": report["stats"]["mapped_misses"],
    })
}

/// Returns the host's tables as text, with a row for each domain.
fn host_tables(tables: &Tables) -> String {
    let headings = [
        "domain#",
        "name",
        "pid#",
        "boot#",
        "services",
        "unbound#",
        "bound#",
        "grants#",
        "held#",
        "reached by",
        "stores#",
        "nodes#",
        "watches#",
    ];
    let mut table = Table::new(&headings);
    for domain in &tables.domains {
        table.row([
            domain.domid.to_string(),
            domain.name.clone(),
            or_dash(domain.pid),
            domain.boot.to_string(),
            joined(domain.services.iter().filter(|pid| **pid != std::process::id())),
            domain.ports_unbound.to_string(),
            domain.ports_bound.to_string(),
            domain.grants.to_string(),
            domain.grants_held.to_string(),
            joined(domain.leases.iter().map(|(domain, pid)| format!("{domain}/{pid}"))),
            domain.store_connections.to_string(),
            domain.store_nodes.to_string(),
            domain.store_watches.to_string(),
        ]);
    }
    // The headings are short, so the text explains them.
    format!(
        "host process {}: connections: {}, to the store: {}, sets of event channels: {}\nunbound, \
         bound: event channels; held: grants in use by a peer;\nreached by: domain/process; \
         stores: store connections; nodes, watches: of the store\n{table}",
        tables.host_pid, tables.connections, tables.store_connections, tables.event_sets,
    )
}

/// Returns the process that runs the frontend's domain.
fn pid(row: &VifRow, tables: &Tables) -> Option<u32> {
    tables.domain(row.vif.domain.0)?.pid
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn joined<T: ToString>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(" ") }
}
