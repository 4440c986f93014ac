//! Facts about vhost-net, whose threads move the frames of TAPs for a backend with `--port vhost`.

use super::backend::BackendFact;
use super::process::DeviceState;
use crate::doctor::roots::Roots;
use grantway_ports::PortSpec;

/// File of the unit's options, and the variable in it.
const OPTIONS: (&str, &str) = ("etc/default/grantway", "GRANTWAY_BACKEND_OPTIONS");

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
            user: running.unwrap_or_else(|| {
                let text = roots.text(OPTIONS.0).unwrap_or_default();
                text.lines().any(gives_vhost).then(|| format!("/{}", OPTIONS.0))
            }),
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

/// Returns true if a line of the unit's options has `--port vhost`.
fn gives_vhost(line: &str) -> bool {
    let Some((name, value)) = line.split_once('=') else { return false };
    if name.trim() != OPTIONS.1 {
        return false;
    }
    let words = value.split(|c: char| c.is_whitespace() || "=\"'".contains(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| pair[0] == "--port" && is_vhost(pair[1]))
}
