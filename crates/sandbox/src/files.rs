//! The files that the control thread may open.

use crate::error::SandboxError;
use crate::offer::Landlock;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope, make_bitflags,
};
use std::path::{Path, PathBuf};

/// The newest version of landlock whose rights are handled here, all of which the tests have
/// seen enforced. An older kernel enforces what it has.
const HANDLED: ABI = ABI::V6;

/// Purpose for which a listed file or folder may be opened. A folder stands for everything below
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Reading.
    Read,
    /// Reading, writing and requests: a device.
    Device,
    /// Making new files and writing them.
    Write,
    /// All operations on files, folders and sockets of the process's own.
    Own,
}

impl Use {
    fn rights(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
            Self::Device => make_bitflags!(AccessFs::{ReadFile | WriteFile | ReadDir | IoctlDev}),
            Self::Write => make_bitflags!(AccessFs::{WriteFile | MakeReg | Truncate}),
            Self::Own => make_bitflags!(AccessFs::{
                ReadFile | WriteFile | ReadDir | Truncate
                    | MakeReg | MakeDir | MakeSock | RemoveFile | RemoveDir
            }),
        }
    }
}

/// A list of files and folders.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Files(Vec<(PathBuf, Use)>);

impl Files {
    /// Makes an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file or folder. If it does not exist when the list takes effect, it cannot be opened,
    /// even if it is made later.
    #[must_use]
    pub fn with(mut self, path: impl Into<PathBuf>, what: Use) -> Self {
        self.0.push((path.into(), what));
        self
    }

    /// Adds the folder of a file, so that the file may be replaced or made later. If the file is a
    /// symbolic link, also adds the folder of its target.
    #[must_use]
    pub fn with_folder_of(self, file: &Path, what: Use) -> Self {
        let folder = |path: &Path| match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => path.to_owned(),
        };
        let list = self.with(folder(file), what);
        match std::fs::canonicalize(file) {
            Ok(real) => list.with(folder(&real), what),
            Err(_) => list,
        }
    }

    /// The calling thread, and those that it starts later, open nothing else, and make no
    /// TCP connection. It gives which version of landlock does so.
    pub(crate) fn enforce(&self) -> Result<Landlock, SandboxError> {
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(HANDLED))?
            .handle_access(AccessNet::from_all(HANDLED))?
            .scope(Scope::from_all(HANDLED))?
            .create()?;
        for (path, what) in &self.0 {
            let Ok(opened) = PathFd::new(path) else { continue };
            let mut rights = what.rights();
            if !path.is_dir() {
                rights &= AccessFs::from_file(HANDLED);
            }
            rules = rules.add_rule(PathBeneath::new(opened, rights))?;
        }
        match rules.restrict_self()?.landlock {
            LandlockStatus::Available { effective_abi, .. } => {
                Ok(Landlock::Version(effective_abi as u32))
            }
            LandlockStatus::NotEnabled => Err(SandboxError::LandlockOff),
            LandlockStatus::NotImplemented => Err(SandboxError::NoLandlock),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_stands_for_its_folder_and_for_where_it_leads() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, file) = (here.path().join("rules"), there.path().join("rules"));
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let list = Files::new().with_folder_of(&link, Use::Read);
        let real = there.path().canonicalize().unwrap();
        assert_eq!(list.0, [(here.path().to_owned(), Use::Read), (real, Use::Read)]);
        // A name without a folder, of a file that is not there.
        let list = Files::new().with_folder_of(Path::new("gw-none"), Use::Write);
        assert_eq!(list.0, [(PathBuf::from("."), Use::Write)]);
    }
}
