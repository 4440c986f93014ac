//! The toolstack's commands as processes: what they print, where, and how they
//! end. Needs neither root nor TAPs.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn grantway(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grantway"));
    command.args(args).stdin(Stdio::null()).env_remove("RUST_LOG");
    command.env("GRANTWAY_PATIENCE", "120");
    command
}

fn run(args: &[&str]) -> Output {
    grantway(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the output of a command that succeeds.
fn done(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The one line of a command that does not, without its name.
fn refused(status: i32, args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(status), "{args:?}");
    assert_eq!(text(&output.stdout), "", "{args:?}");
    let words = text(&output.stderr);
    let line = words.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{words}");
    line.strip_prefix(&format!("grantway {}: ", args[0])).unwrap().to_owned()
}

/// A host in a folder of its own.
struct Host {
    child: Child,
    dir: tempfile::TempDir,
}

impl Host {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = grantway(&["host", "--dir", dir.path().to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, dir }
    }

    fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    fn attach(&self, vif: &str) -> String {
        done(&["attach", "--host", self.path(), "--domain", "1", vif])
    }

    fn list(&self) -> Value {
        serde_json::from_str(&done(&["list", "--host", self.path(), "--json"])).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_vif_is_attached_shown_and_detached() {
    let host = Host::start();
    let attached = host.attach("mac=00:16:3e:00:00:01,vifname=gwb1,bridge=br0,mtu=9000");
    assert_eq!(attached, "attached vif1.0 (mac 00:16:3e:00:00:01)\n");
    assert!(host.attach("").starts_with("attached vif1.1 (mac 00:16:3e:"));
    let vifs = host.list();
    let vif = &vifs["vifs"][0];
    for (key, value) in [
        ("vif", "vif1.0"),
        ("mac", "00:16:3e:00:00:01"),
        ("vifname", "gwb1"),
        ("bridge", "br0"),
        ("backend_state", "Initialising"),
        ("frontend_state", "Initialising"),
    ] {
        assert_eq!(vif[key], value, "{key}");
    }
    assert_eq!((&vif["mtu"], &vif["pid"]), (&Value::from(9000), &Value::Null));
    let table = done(&["list", "--host", host.path(), "--tables"]);
    let words: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(words[0][..4], ["domain", "devid", "mac", "vifname"]);
    assert_eq!(words[1][..4], ["1", "0", "00:16:3e:00:00:01", "gwb1"]);
    assert_eq!(words[2][3], "vif1.1", "the name that its device would get");
    assert!(table.contains(" guest-1 "), "{table}");
    let detach = ["detach", "--host", host.path(), "--domain", "1", "--devid"];
    assert_eq!(done(&[&detach[..], &["0"]].concat()), "detached vif1.0\n");
    assert_eq!(done(&[&detach[..], &["1", "--force"]].concat()), "detached vif1.1\n");
    assert_eq!(host.list()["vifs"], Value::Array(Vec::new()));
}

#[test]
fn impossible_requests_are_refused_in_one_line() {
    let host = Host::start();
    let path = host.path();
    let attach = |vif: &str| ["attach", "--host", path, "--domain", "1", vif].map(str::to_owned);
    let told = |status, args: &[String]| {
        refused(status, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(told(2, &attach("model=e1000")).contains("remove it"));
    assert!(told(2, &attach("mtu=9")).contains("from 68 to 65535"));
    assert!(told(1, &attach("backend=9")).contains("domain 9 does not exist"));
    assert!(!done(&["list", "--host", path, "--tables"]).contains("guest-1"), "nothing is left");
    host.attach("");
    assert!(told(1, &attach("devid=0")).contains("(free: 1)"));
    let detach = ["detach", "--host", path, "--domain"];
    let none = refused(1, &[&detach[..], &["1", "--devid", "7"]].concat());
    assert!(none.contains("vif1.7 is not attached"), "{none}");
    let none = refused(1, &[&detach[..], &["9", "--devid", "0"]].concat());
    assert!(none.contains("domain 9 does not exist"), "{none}");
    let busy = refused(1, &["host", "--dir", path]);
    assert!(busy.contains("choose another --dir"), "{busy}");
}

#[test]
fn without_a_host_every_command_names_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none");
    let path = path.to_str().unwrap();
    for args in [
        &["attach", "--host", path, "--domain", "1"][..],
        &["detach", "--host", path, "--domain", "1", "--devid", "0"],
        &["list", "--host", path],
        &["backend", "--host", path, "--port", "null"],
        &["frontend", "--host", path, "--domain", "1", "--port", "null"],
    ] {
        let told = refused(1, args);
        assert!(told.contains("grantway host --dir"), "{told}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for args in [&[][..], &["nothing"], &["host"], &["attach", "--host", "x", "--domain", "0"]] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    let version = done(&["--version"]);
    let package = concat!("grantway ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(package), "{version}");
    assert!(done(&["--help"]).contains("\nRun:\n  backend "));
    let help = done(&["attach", "--help"]);
    assert!(help.contains("Example:"), "{help}");
    let output = grantway(&["list", "--host", "x"]).env("RUST_LOG", "a=b=c").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("grantway list: RUST_LOG=\"a=b=c\": "));
}

#[test]
fn a_host_ends_when_it_is_told_to() {
    for signal in ["TERM", "INT"] {
        let mut host = Host::start();
        assert!(host.dir.path().join("control").exists());
        let pid = host.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        assert!(sent.success());
        assert_eq!(wait(&mut host.child), Some(0), "{signal}");
        for socket in ["control", "xenstored/socket"] {
            assert!(!host.dir.path().join(Path::new(socket)).exists(), "{socket}");
        }
    }
}

/// The exit status, or `None` when it does not end.
fn wait(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(120) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

#[test]
fn the_manual_has_what_other_programs_run() {
    let folder = tempfile::tempdir().unwrap();
    done(&["generate", folder.path().to_str().unwrap()]);
    let page = |name: &str| {
        let path = folder.path().join(format!("man1/{name}.1"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    for (name, words) in [
        ("grantway-bench", "slices of at most 0.5 s"),
        ("grantway-bench-packets", "copied bytes, notifications and wake"),
        ("grantway-demo", "needs neither Xen nor root"),
        ("grantway-iperf-client", "Bits per second per UDP stream"),
    ] {
        let text = page(name).replace("\\-", "-").to_lowercase();
        assert!(text.contains(&words.to_lowercase()), "no {words:?} in {text}");
    }
    assert!(done(&["completions", "zsh"]).starts_with("#compdef grantway"));
    assert!(!folder.path().join("man1/grantway-outline.1").exists());
    for shell in ["grantway.bash", "grantway.fish", "_grantway"] {
        let path = folder.path().join("completions").join(shell);
        let text = std::fs::read_to_string(path).unwrap();
        for word in ["nftables", "guest-to-guest", "bandwidth", "no-offloads"] {
            assert!(text.contains(word), "no {word:?} in {shell}");
        }
    }
}

/// Runs a host until it serves, with a file as its standard error. Returns what the file has.
fn log_of_a_host(args: &[&str], journal: impl Fn(&std::fs::Metadata) -> String) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let file = std::fs::File::create(&path).unwrap();
    let stream = journal(&file.metadata().unwrap());
    let dir = folder.path().join("host");
    let mut child = grantway(&[&["host", "--host", dir.to_str().unwrap()], args].concat())
        .env("JOURNAL_STREAM", stream)
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let sent = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert_eq!(wait(&mut child), Some(0));
    std::fs::read_to_string(&path).unwrap()
}

#[test]
fn the_journal_gets_priorities_and_no_times() {
    let journal = |file: &std::fs::Metadata| format!("{}:{}", file.dev(), file.ino());
    let log = log_of_a_host(&[], journal);
    assert!(log.starts_with("<6> INFO serving "), "{log}");
    // A program that was started by a service, with a log of its own, does not write to the journal.
    let log = log_of_a_host(&[], |file| format!("{}:{}", file.dev(), file.ino() + 1));
    assert!(log.starts_with("20") && log.contains(" INFO serving "), "{log}");
    let log = log_of_a_host(&["--log-format", "json"], journal);
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}"));
        assert_eq!(event["level"], "INFO");
        assert!(event["message"].is_string() && event["timestamp"].is_string(), "{line}");
    }
    assert!(log.contains("\"message\":\"serving "), "{log}");
}
