//! The grant table of a guest. The guest may write anything into it, here by the descriptor of
//! the memory that holds the table.

use grantway_hypervisor::GrantRef;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Name that the embedded host gives to the memory of grant tables.
const NAME: &str = "/memfd:grantway-grants";
/// Bytes of an entry: flags, domain, frame.
pub const ENTRY: usize = 8;

pub struct Table(File);

impl Table {
    /// The table of the one domain that `boots`.
    pub fn of<T>(boots: impl FnOnce() -> T) -> (Self, T) {
        let before: BTreeSet<_> = tables().into_iter().map(|(inode, _)| inode).collect();
        let booted = boots();
        let mut new = tables();
        new.retain(|(inode, _)| !before.contains(inode));
        assert!(!new.is_empty(), "no new grant table");
        (Self(new.remove(0).1), booted)
    }

    /// Returns the bytes of the whole table.
    pub fn image(&self) -> Vec<u8> {
        let bytes = self.0.metadata().unwrap().size() as usize;
        let mut image = vec![0; bytes];
        self.0.read_exact_at(&mut image, 0).unwrap();
        image
    }

    /// Writes an earlier image back. The caller makes sure that nobody uses a page of the
    /// guest.
    pub fn restore(&self, image: &[u8]) {
        self.0.write_all_at(image, 0).unwrap();
    }

    /// Writes one entry. Bytes past the end are not written.
    pub fn write(&self, gref: GrantRef, entry: [u8; ENTRY]) {
        self.0.write_all_at(&entry, u64::from(gref.0) * ENTRY as u64).unwrap();
    }
}

/// The grant tables that this process has a descriptor of, by inode.
fn tables() -> Vec<(u64, File)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        // Others close theirs meanwhile.
        let Ok(link) = std::fs::read_link(&path) else { continue };
        if !link.to_string_lossy().starts_with(NAME) {
            continue;
        }
        if let Ok(file) = File::options().read(true).write(true).open(&path) {
            found.push((file.metadata().unwrap().ino(), file));
        }
    }
    found
}
