//! Facts about vhost-net, whose threads move the frames of TAPs for a backend with `--port vhost`.

use super::backend::BackendFact;
use super::process::DeviceState;
use crate::args::backend_definition;
use crate::config;
use crate::doctor::facts::options::OPTIONS;
use crate::doctor::roots::Roots;
use grantway_ports::PortSpec;

/// File of the unit's environment, and the variable that has options. They win over the file of
/// options.
const ENVIRONMENT: (&str, &str) = ("etc/default/grantway", "GRANTWAY_BACKEND_OPTIONS");

/// State of vhost-net, and the reason for which a backend needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vhost {
    /// File or process that has `--port vhost`; none if nothing needs vhost-net.
    pub user: Option<String>,
    /// `/dev/vhost-net`.
    pub device: DeviceState,
    /// True if the kernel has the module: loaded, built in or to be loaded. Also true if the kernel
    /// does not say.
    pub module: bool,
}

impl Vhost {
    /// Gathers the facts. A backend that runs is asked before the options of a unit, which may have
    /// changed since it started.
    pub fn gather(roots: &Roots, backend: &BackendFact) -> Self {
        let running = match backend {
            BackendFact::Serves { ports, .. } => {
                Some(ports.iter().any(|port| is_vhost(port)).then(|| "the running backend".into()))
            }
            _ => None,
        };
        let listed = |file| roots.lists_module(file, "vhost_net");
        Self {
            user: running.unwrap_or_else(|| of_unit(roots)),
            device: DeviceState::of(roots, "dev/vhost-net"),
            module: roots.has("sys/module/vhost_net")
                || listed("modules.builtin") == Some(true)
                || listed("modules.dep") != Some(false),
        }
    }
}

/// Returns true for a port of a TAP behind vhost-net.
fn is_vhost(port: &str) -> bool {
    matches!(port.parse(), Ok(PortSpec::Vhost { .. }))
}

/// Returns the file by which the unit starts a backend with `--port vhost`.
fn of_unit(roots: &Roots) -> Option<String> {
    let text = roots.text(ENVIRONMENT.0).unwrap_or_default();
    let given = text.lines().filter_map(port_of_line).next_back();
    let (port, file) = match given {
        Some(port) => (Some(port), ENVIRONMENT.0),
        None => (
            roots
                .text(OPTIONS)
                .and_then(|text| config::value_of(&backend_definition(), &text, "port")),
            OPTIONS,
        ),
    };
    port.is_some_and(|port| is_vhost(&port)).then(|| format!("/{file}"))
}

/// Returns the port that a line of the unit's environment gives.
fn port_of_line(line: &str) -> Option<String> {
    let (name, value) = line.split_once('=')?;
    if name.trim() != ENVIRONMENT.1 {
        return None;
    }
    let words = value.split(|c: char| c.is_whitespace() || "=\"'".contains(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.windows(2).find(|pair| pair[0] == "--port").map(|pair| pair[1].to_owned())
}
