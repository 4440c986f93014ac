//! Messages between a service manager and `grantway backend`.

mod common;

use common::part::Part;
use common::site::Site;
use common::{PROMPT, alone};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;

#[test]
fn a_reload_without_rules_changes_nothing() {
    let _alone = alone();
    let site = Site::start();
    let mut backend = site.backend(None, &["--port", "null"]);
    backend.signal(Signal::HUP);
    backend.wait_said("no rules to reload", PROMPT);
    assert!(backend.is_alive());
    backend.terminate();
}

#[test]
fn a_service_manager_is_told_once_it_serves() {
    let _alone = alone();
    let (site, folder) = (Site::start(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PROMPT)).expect("a timeout");
    let mut command = site.command(None, "backend", &["--port", "null"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut backend = Part::spawn("backend", command);
    let mut text = [0; 64];
    let len = socket.recv(&mut text).expect("a word");
    assert_eq!(&text[..len], b"READY=1");
    // It serves by now.
    assert!(site.backend_report()["vifs"].is_array());
    assert!(backend.is_alive());
}
