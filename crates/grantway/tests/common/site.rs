//! A host in a folder of its own, and what is started on it.

use super::network::Namespace;
use super::part::Part;
use super::{
    PATIENCE, PROMPT, finish, grantway, grantway_with, program, succeed, try_wait_for, wait_for,
    words,
};
use serde_json::Value;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// The guest's address in every set-up.
pub const MAC: &str = "00:16:3e:00:00:01";

/// A running host.
pub struct Site {
    /// The host's process.
    pub host: Part,
    folder: tempfile::TempDir,
}

impl Site {
    /// Starts a host in a new folder.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("gw-site-").tempdir().expect("a folder");
        let mut command = grantway();
        command.arg("host").arg("--dir").arg(folder.path());
        Self { host: Part::start("host", command), folder }
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// A file in its folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder as an argument.
    pub fn path(&self) -> String {
        self.folder.path().to_str().expect("a plain name").to_owned()
    }

    /// A command on this host: `NAME --host DIR ARGS`, in a namespace or here.
    pub fn command(&self, place: Option<&Namespace>, name: &str, args: &[&str]) -> Command {
        let program = program("grantway");
        let mut command = match place {
            Some(namespace) => namespace.command(program.to_str().expect("a plain name")),
            None => Command::new(program),
        };
        command.env(PATIENCE.0, PATIENCE.1).args([name, "--host"]).arg(self.dir()).args(args);
        command
    }

    /// A site of two guests on the backend's bridge.
    pub fn bridged() -> (Part, Self) {
        Self::bridged_with("")
    }

    /// Makes a site with two guests on a bridge. `second` is added to the vif string of the second
    /// one.
    pub fn bridged_with(second: &str) -> (Part, Self) {
        let site = Self::start();
        for (domain, more) in [("1", ""), ("2", second)] {
            let vif = format!("mac=00:16:3e:00:00:0{domain},{more}");
            succeed(site.command(None, "attach", &["--domain", domain, &vif]), PROMPT);
        }
        (site.backend(None, &["--port", "bridge"]), site)
    }

    /// Attaches vif 0 (or what the string says) to domain 1.
    pub fn attach(&self, vif: &str) -> String {
        succeed(self.command(None, "attach", &["--domain", "1", vif]), PROMPT)
    }

    /// Detaches vif 0 of domain 1.
    pub fn detach(&self) -> Output {
        let args = ["--domain", "1", "--devid", "0"];
        finish(self.command(None, "detach", &args), PROMPT)
    }

    /// Detaches vif 0 of domain 1, which must succeed.
    pub fn detached(&self) {
        let output = self.detach();
        assert!(output.status.success(), "detach: {}\n{}", output.status, words(&output));
    }

    /// Starts a backend.
    pub fn backend(&self, place: Option<&Namespace>, args: &[&str]) -> Part {
        Part::start("backend", self.command(place, "backend", args))
    }

    /// Starts the frontend of domain 1's vif 0.
    pub fn frontend(&self, place: Option<&Namespace>, args: &[&str]) -> Part {
        let args = [&["--domain", "1", "--devid", "0"], args].concat();
        Part::start("frontend", self.command(place, "frontend", &args))
    }

    /// Returns the output of `grantway list`, with tables.
    pub fn list(&self) -> Value {
        let args = ["list", "--host", &self.path(), "--tables", "--json"];
        let text = succeed(grantway_with(&args), PROMPT);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("list: {e} in {text}"))
    }

    /// Domain `number` in the host's tables.
    pub fn domain(&self, number: u64) -> Value {
        let list = self.list();
        let domains = list["tables"]["domains"].as_array().expect("domains");
        domains.iter().find(|d| d["domid"] == number).cloned().unwrap_or(Value::Null)
    }

    /// The backend's report.
    pub fn backend_report(&self) -> Value {
        report(&self.file("backend-0.sock"))
    }

    /// The first vif of the backend's report.
    pub fn vif_report(&self) -> Value {
        self.backend_report()["vifs"][0].take()
    }

    /// The frontend's report.
    pub fn frontend_report(&self) -> Value {
        report(&self.file("frontend-1.0.sock"))
    }

    /// Waits until `look` has something; where it has not, shows how both ends
    /// stand.
    pub fn wait<T>(&self, what: &str, within: Duration, look: impl FnMut() -> Option<T>) -> T {
        try_wait_for(within, look).unwrap_or_else(|| {
            let read = |name| try_report(&self.file(name)).unwrap_or_default();
            panic!(
                "waited {within:?} for {what}, and it did not come\nbackend: {:#}\nfrontend: {:#}",
                read("backend-0.sock"),
                read("frontend-1.0.sock")
            )
        })
    }

    /// Waits until both ends say that packets may flow.
    pub fn wait_connected(&self) {
        self.wait("both ends to connect", PROMPT, || {
            (try_report(&self.file("frontend-1.0.sock"))?["connected"] == true
                && try_report(&self.file("backend-0.sock"))?["vifs"][0]["connected"] == true)
                .then_some(())
        });
    }

    /// Checks that the host holds nothing of a process that is no more.
    pub fn check_no_trace(&self, pid: u32) {
        let list = wait_for("the host to notice a process's end", PROMPT, || {
            let list = self.list();
            let gone = !mentions(&list["tables"], pid);
            (gone || list.is_null()).then_some(list)
        });
        assert!(!mentions(&list["tables"], pid), "process {pid} is still in the tables: {list:#}");
    }
}

/// Returns true if the number of a process is among the processes of the tables.
fn mentions(tables: &Value, pid: u32) -> bool {
    let domains = tables["domains"].as_array().expect("domains");
    domains.iter().any(|domain| {
        let has = |list: &Value| list.as_array().is_some_and(|l| l.contains(&pid.into()));
        let leases = domain["leases"].as_array();
        domain["pid"] == pid
            || has(&domain["services"])
            || leases.is_some_and(|leases| leases.iter().any(|lease| lease[1] == pid))
    })
}

/// Reads a running part's report.
fn report(socket: &Path) -> Value {
    try_report(socket).unwrap_or_else(|| panic!("{}: no report", socket.display()))
}

/// Reads a part's report, if it runs.
pub fn try_report(socket: &Path) -> Option<Value> {
    let mut client = UnixStream::connect(socket).ok()?;
    client.set_read_timeout(Some(PROMPT)).ok()?;
    let mut text = Vec::new();
    client.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
