//! Debian's own xenstore tools against the embedded host's store.
//!
//! Needs the package xenstore-utils; if it is missing, each test says that it is
//! skipped.

mod store_support;

use grantway_hypervisor::StoreOps;
use grantway_needs::{Need, met};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use store_support::{GUARD, Served, eventually};

/// Returns true if the tools that a test runs are installed.
fn installed(tools: &[&str]) -> bool {
    let needs: Vec<_> = tools.iter().map(|tool| Need::Program(tool, "xenstore-utils")).collect();
    met(&needs)
}

fn command(served: &Served, tool: &str, args: &[&str]) -> Command {
    let mut command = Command::new(tool);
    command.args(args).env("XENSTORED_PATH", served.socket(0)).stdin(Stdio::null());
    command
}

/// Runs a tool to its end, which must come.
fn run(served: &Served, tool: &str, args: &[&str]) -> Output {
    let mut command = command(served, tool, args);
    ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn ended(mut child: std::process::Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > GUARD {
            child.kill().unwrap();
            panic!("no end within {GUARD:?}: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// Returns the output of a tool that must succeed.
fn good(served: &Served, tool: &str, args: &[&str]) -> String {
    let out = run(served, tool, args);
    assert!(out.status.success(), "{tool} {args:?}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// Returns the complaint of a tool that must fail.
fn bad(served: &Served, tool: &str, args: &[&str]) -> String {
    let out = run(served, tool, args);
    assert!(!out.status.success(), "{tool} {args:?}: {out:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn write_read_list_and_remove() {
    let tools = ["write", "read", "list", "exists", "rm", "ls"].map(|t| format!("xenstore-{t}"));
    if !installed(&tools.each_ref().map(String::as_str)) {
        return;
    }
    let served = Served::start(&[0]);
    let tool = |tool: &str, args: &[&str]| good(&served, tool, args);
    tool("xenstore-write", &["/a/b/c", "1", "/a/d", "two words"]);
    assert_eq!(tool("xenstore-read", &["/a/b/c", "/a/d"]), "1\ntwo words\n");
    assert_eq!(tool("xenstore-list", &["/a"]), "b\nd\n");
    assert_eq!(tool("xenstore-list", &["-p", "/a"]), "/a/b\n/a/d\n");
    tool("xenstore-exists", &["/a/b"]);
    assert_eq!(bad(&served, "xenstore-exists", &["/a/x"]), "");
    let missing = bad(&served, "xenstore-read", &["/a/x"]);
    assert!(missing.contains("couldn't read path /a/x"), "{missing}");
    tool("xenstore-rm", &["/a/b"]);
    assert_eq!(tool("xenstore-ls", &["-f", "/a"]), "/a/d = \"two words\"\n");
    // -t tidies: parents that are left empty go too.
    tool("xenstore-write", &["/x/y/z", ""]);
    tool("xenstore-rm", &["-t", "/x/y/z"]);
    assert!(!served.server.lock().unwrap().exists("/x"));
    // A relative path is in domain 0's own folder.
    tool("xenstore-write", &["name", "Domain-0"]);
    assert_eq!(tool("xenstore-read", &["/local/domain/0/name"]), "Domain-0\n");
}

#[test]
fn the_tree_with_permissions() {
    if !installed(&["xenstore-chmod", "xenstore-ls"]) {
        return;
    }
    let served = Served::start(&[0]);
    {
        let mut server = served.server.lock().unwrap();
        server.write("/local/domain/1/name", b"guest").unwrap();
        server.write("/local/domain/1/raw", b"\x01\xff\n").unwrap();
    }
    good(&served, "xenstore-chmod", &["/local/domain/1", "n0", "r1"]);
    good(&served, "xenstore-chmod", &["-r", "/local/domain/1/name", "b1"]);
    let found = good(&served, "xenstore-ls", &["-fp", "/"]);
    let lines: Vec<String> =
        found.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "/local = \"\" (n0)",
        "/local/domain = \"\" (n0)",
        "/local/domain/1 = \"\" (n0,r1)",
        "/local/domain/1/name = \"guest\" (b1)",
        "/local/domain/1/raw = \"\\001\\xff\\n\" (n0)",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_list_that_is_longer_than_a_message() {
    if !installed(&["xenstore-list"]) {
        return;
    }
    let served = Served::start(&[0]);
    let names: Vec<String> = (0..1500).map(|n| format!("node-number-{n:05}")).collect();
    for name in &names {
        let path = format!("/long/{name}");
        served.server.lock().unwrap().write(&path, b"").unwrap();
    }
    let listed = good(&served, "xenstore-list", &["/long"]);
    assert_eq!(listed.lines().collect::<Vec<_>>(), names);
}

#[test]
fn watch_tells_each_change() {
    if !installed(&["xenstore-watch", "xenstore-write", "xenstore-rm"]) {
        return;
    }
    let served = Served::start(&[0]);
    let mut command = command(&served, "xenstore-watch", &["-n", "3", "/w"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let set =
        |n| served.server.lock().unwrap().usage(grantway_hypervisor::DomId::ZERO).watches == n;
    eventually("a watch", || set(1).then_some(()));
    good(&served, "xenstore-write", &["/w/a", "1"]);
    good(&served, "xenstore-rm", &["/w"]);
    let out = ended(child);
    assert!(out.status.success());
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "/w\n/w/a\n/w\n");
    eventually("the end of the watch", || set(0).then_some(()));
}
