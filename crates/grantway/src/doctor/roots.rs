//! Where a system keeps what the doctor looks at.

use grantway_command::patience;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folders where modprobe's configuration lies; a file hides those of the
/// same name in later ones.
pub const MODPROBE: [&str; 5] = [
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "usr/lib/modprobe.d",
    "lib/modprobe.d",
];

/// A system to look at: this one, or a test's tree.
#[derive(Debug, Clone)]
pub struct Roots {
    root: PathBuf,
    /// Where a backend keeps its socket.
    pub run_folder: PathBuf,
    /// Where programs are found.
    programs: Vec<PathBuf>,
    /// How long anything outside this process gets to answer.
    pub patience: Duration,
}

/// Where a store may be spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAt {
    /// xenstored's socket.
    Socket(PathBuf),
    /// The kernel's connection.
    Device(PathBuf),
}

impl Roots {
    /// This system, with a backend that keeps its socket in `run_folder`.
    pub fn system(run_folder: &Path) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // A user without rights may have no sbin in the path, where xl lies.
        let own = std::env::split_paths(&path);
        let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        Self {
            root: "/".into(),
            run_folder: run_folder.to_owned(),
            programs: own.filter(|folder| folder.is_absolute()).chain(sbin).collect(),
            patience: patience::answer(Duration::from_secs(2)),
        }
    }

    /// A tree that looks like a system, with its programs in `bin`, whose parts answer
    /// whenever they get to it.
    #[cfg(test)]
    pub fn under(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            run_folder: root.join("run/grantway"),
            programs: vec![root.join("bin")],
            patience: Duration::from_secs(120),
        }
    }

    /// The same, which waits so long.
    #[cfg(test)]
    pub fn waiting(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// A path of the system, written without the leading slash.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// What a file says, without white space around it; `None` where it cannot
    /// be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        read(&self.at(path))
    }

    /// The number in a file.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Whether something is there.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).exists()
    }

    /// The names in a folder, in order; none where it cannot be read.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        names(&self.at(path))
    }

    /// The last part of what a symbolic link names.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.at(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// A program, where it is installed.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        self.programs.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// Where the store may be, the best place first.
    pub fn stores(&self) -> Vec<StoreAt> {
        let sockets = ["run/xenstored/socket", "var/run/xenstored/socket"];
        let socket = sockets.iter().map(|path| self.at(path)).find(|path| path.exists());
        let device = Some(self.at("dev/xen/xenbus")).filter(|path| path.exists());
        socket.map(StoreAt::Socket).into_iter().chain(device.map(StoreAt::Device)).collect()
    }
}

/// What a file says, without white space around it.
pub fn read(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The names in a folder, in order.
pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
