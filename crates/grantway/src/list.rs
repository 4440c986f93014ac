//! `grantway list`: the vifs of a host, and what the host holds.

use crate::attach::toolstack;
use crate::cli::ListArgs;
use crate::error::CommandError;
use crate::output;
use crate::table::Table;
use crate::toolstack::device::{self, VifRow};
use grantway_embedded::Tables;
use grantway_netif::XenbusState;
use serde_json::{Value, json};

/// Shows them.
///
/// # Errors
///
/// No host serves the folder.
pub fn run(args: &ListArgs) -> Result<(), CommandError> {
    let (host, mut store) = toolstack(&args.host)?;
    let vifs = device::list(store.as_mut())?;
    let tables = host.host_tables()?;
    if args.json {
        let mut value =
            json!({ "vifs": vifs.iter().map(|v| vif_json(v, &tables)).collect::<Vec<_>>() });
        if args.tables {
            value["tables"] = serde_json::to_value(&tables).map_err(CommandError::failed)?;
        }
        return output::line(value.to_string());
    }
    let mut text = match vifs.is_empty() {
        true => "no vif is attached; attach one: grantway attach --host DIR --domain 1\n".into(),
        false => vif_table(&vifs, &tables).to_string(),
    };
    if args.tables {
        text.push('\n');
        text.push_str(&host_tables(&tables));
    }
    output::line(text)
}

fn vif_table(vifs: &[VifRow], tables: &Tables) -> Table {
    let headings =
        ["domain#", "devid#", "mac", "vifname", "backend", "frontend", "pid#", "bridge", "mtu#"];
    let mut table = Table::new(&headings);
    for row in vifs {
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
        ]);
    }
    table
}

fn vif_json(row: &VifRow, tables: &Tables) -> Value {
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
    })
}

/// What the host holds, domain by domain.
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
    format!(
        "host process {}: {} connections, {} to the store, {} sets of event channels\n\
         unbound and bound are event channels; held are grants that a peer maps or copies;\n\
         reached by is domain/process; stores, nodes and watches are the domain's in the store\n\
         {table}",
        tables.host_pid, tables.connections, tables.store_connections, tables.event_sets,
    )
}

/// The process that runs the frontend's domain.
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
