//! Places on a system that the doctor reads.

use grantway_command::patience;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Folders of modprobe's configuration. A file hides files of the same name in later folders.
pub const MODPROBE: [&str; 5] = [
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "usr/lib/modprobe.d",
    "lib/modprobe.d",
];

/// The system to check: this machine, or a folder of a test.
#[derive(Debug, Clone)]
pub struct Roots {
    root: PathBuf,
    /// Folder in which a backend keeps its socket.
    pub run_folder: PathBuf,
    /// Folders in which programs are searched.
    programs: Vec<PathBuf>,
    /// Time limit for answers of other processes.
    pub patience: Duration,
}

/// A place of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAt {
    /// xenstored's socket.
    Socket(PathBuf),
    /// The kernel's connection, a device.
    Device(PathBuf),
}

impl Roots {
    /// Returns this system, with a backend that keeps its socket in `run_folder`.
    pub fn system(run_folder: &Path) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // xl lies in an sbin, which the path of an ordinary user may lack.
        let own = std::env::split_paths(&path);
        let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        Self {
            root: "/".into(),
            run_folder: run_folder.to_owned(),
            programs: own.filter(|folder| folder.is_absolute()).chain(sbin).collect(),
            patience: patience::answer(Duration::from_secs(2)),
        }
    }

    /// Returns a folder that looks like a system, with its programs in `bin`. The time limit only
    /// guards against hanging.
    #[cfg(test)]
    pub fn under(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            run_folder: root.join("run/grantway"),
            programs: vec![root.join("bin")],
            patience: Duration::from_secs(120),
        }
    }

    /// Returns this system with another time limit.
    #[cfg(test)]
    pub fn waiting(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the full path of `path`, which has no leading slash.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the text of a file, without white space around it, or `None` if the file cannot be
    /// read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        read(&self.at(path))
    }

    /// Returns the number in a file.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns true if the path exists.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).exists()
    }

    /// Returns the names in a folder, sorted, or no names if the folder cannot be read.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        names(&self.at(path))
    }

    /// Returns the last part of the target of a symbolic link.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.at(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns true if `file` lists this module: `modules.dep` or `modules.builtin` of the running
    /// kernel. Returns `None` if the file does not exist.
    pub fn lists_module(&self, file: &str, module: &str) -> Option<bool> {
        let release = self.text("proc/sys/kernel/osrelease").unwrap_or_default();
        let text = self.text(format!("lib/modules/{release}/{file}"))?;
        let name = |line: &str| -> Option<String> {
            let file = line.split(':').next()?.rsplit('/').next()?;
            Some(file.split(".ko").next()?.replace('-', "_"))
        };
        Some(text.lines().any(|line| name(line).as_deref() == Some(module)))
    }

    /// Returns the path of a program, if it is installed.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        self.programs.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// Returns the places in which the store may be, the best one first.
    pub fn stores(&self) -> Vec<StoreAt> {
        let sockets = ["run/xenstored/socket", "var/run/xenstored/socket"];
        let socket = sockets.iter().map(|path| self.at(path)).find(|path| path.exists());
        let device = Some(self.at("dev/xen/xenbus")).filter(|path| path.exists());
        socket.map(StoreAt::Socket).into_iter().chain(device.map(StoreAt::Device)).collect()
    }
}

/// Returns the text of a file, without white space around it.
pub fn read(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Returns the names in a folder, sorted.
pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
