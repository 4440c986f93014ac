//! The sandbox of `grantway backend`: the files that it allows, and its lines in the log.

use crate::args::BackendArgs;
use grantway_command::place::Place;
use grantway_ports::{PortSpec, claims_folder};
use grantway_sandbox::{Files, Host, Landlock, Part, Sandbox, Use, calls};
use tracing::{info, warn};

/// Confines the process, before it starts other threads.
pub fn process(place: &Place, args: &BackendArgs) -> Sandbox {
    let host = if place.is_xen() { Host::Xen } else { Host::Embedded };
    match args.uplink.as_deref().map(str::parse) {
        // A worker has its socket.
        Some(Ok(PortSpec::Packet { .. })) => Sandbox::enter_with(host, calls::BURSTS),
        _ => Sandbox::enter(host),
    }
}

/// Confines the calling thread to the files that a backend opens while it serves. Threads that it
/// starts later are confined, too.
pub fn control(sandbox: &mut Sandbox, args: &BackendArgs, port: &PortSpec, place: &Place) {
    sandbox.close(&files(args, port, place));
    if !place.is_xen() && sandbox.held().contains(&Part::Files) {
        grantway_embedded::copy_by_mapping();
    }
}

/// Logs one line for the parts that hold, and one for each part that is missing.
pub fn tell(sandbox: &Sandbox) {
    let mut held: Vec<_> = sandbox.held().iter().map(|part| part.held().to_owned()).collect();
    if let (Some(Landlock::Version(version)), Some(files)) = (sandbox.landlock(), held.last_mut()) {
        *files += &format!(" (landlock {version})");
    }
    info!("sandbox: {}", held.join("; "));
    for missing in sandbox.missing() {
        warn!("sandbox: {missing}");
    }
}

fn files(args: &BackendArgs, port: &PortSpec, place: &Place) -> Files {
    let mut files = Files::new()
        .with(&place.run_folder, Use::Own)
        .with("/dev/net/tun", Use::Device)
        // A message says what kind an interface is that is no TAP.
        .with("/sys/devices/virtual/net", Use::Read);
    // Without the folder, TAPs say what is wrong with it.
    if let Ok(Some(claims)) = claims_folder() {
        files = files.with(claims, Use::Own);
    }
    if place.is_xen() {
        files = files.with("/dev/xen", Use::Device).with("/sys/hypervisor", Use::Read);
        // Messages name these limits.
        for module in ["xen_gntdev", "xen_gntalloc"] {
            files = files.with(format!("/sys/module/{module}"), Use::Read);
        }
    }
    if let PortSpec::Vhost { .. } = port {
        files = files.with("/dev/vhost-net", Use::Device);
    }
    if let Some(rules) = &args.rules {
        files = files.with_folder_of(rules, Use::Read);
    }
    // Each vif that connects opens these files.
    if let PortSpec::Pcap { input, output } = port {
        for (file, what) in [(input, Use::Read), (output, Use::Write)] {
            if let Some(file) = file {
                files = files.with_folder_of(file, what);
            }
        }
    }
    files
}
