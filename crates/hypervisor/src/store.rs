//! The store: xenstore, as a domain uses it.

use crate::{DomId, Error, StoreErrno};
use alloc::string::String;
use alloc::vec::Vec;

/// Event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// The path that changed: the watched path or a path below it.
    pub path: String,
    /// The token that the caller gave to [`FrontendStore::watch`].
    pub token: String,
}

/// Rights of a domain on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// No rights (`n`).
    None,
    /// Read (`r`).
    Read,
    /// Write (`w`).
    Write,
    /// Read and write (`b`).
    Both,
}

/// One entry of a node's permissions. The first entry names the owner, and its
/// rights are those of every domain that no other entry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// The domain that has the rights.
    pub domain: DomId,
    /// Rights of that domain.
    pub rights: Rights,
}

/// Reads and writes, inside or outside of a transaction.
pub trait StoreOps {
    /// Returns the value of a node.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `ENOENT` if the node does not exist.
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error>;

    /// Sets the value of a node. Makes the node and its parents if they do not exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`], for example with `EACCES` (no permission), `EINVAL` (invalid path)
    /// or `ENOSPC` (a quota is used up).
    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error>;

    /// Removes a node and all nodes below it.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `ENOENT` if the parent of the node does not exist.
    fn remove(&mut self, path: &str) -> Result<(), Error>;

    /// Returns the names of a node's children.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `ENOENT` if the node does not exist.
    fn list(&mut self, path: &str) -> Result<Vec<String>, Error>;

    /// Returns the value of a node as text, or `None` if the node does not exist. Bytes that are
    /// not UTF-8 are replaced.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`StoreOps::read`] except `ENOENT`.
    fn read_text(&mut self, path: &str) -> Result<Option<String>, Error> {
        match self.read(path) {
            Ok(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            Err(Error::Store { errno: StoreErrno::Enoent, .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Connection to the store for a frontend. A path that does not begin with `/` is relative to the
/// domain's own folder, `/local/domain/N`.
///
/// The trait requires `Send`, since a vif may move to another thread together with its connection.
pub trait FrontendStore: StoreOps + Send {
    /// Begins a transaction. Reads and writes belong to it until [`FrontendStore::end`]. A
    /// connection has at most one transaction at a time. Prefer [`transaction`], which repeats a
    /// transaction after a conflict.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `EBUSY` if a transaction is open, and with `ENOSPC` if the
    /// domain has too many of them.
    fn begin(&mut self) -> Result<(), Error>;

    /// Ends the transaction. Keeps its writes if `commit` is true, and discards them otherwise.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `EAGAIN` if another connection changed a node that the
    /// transaction read.
    fn end(&mut self, commit: bool) -> Result<(), Error>;

    /// Watches a path and all paths below it. The watch fires once as soon as it is set.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `EEXIST` if the connection has this watch already, and with
    /// `E2BIG` if the domain has too many watches.
    fn watch(&mut self, path: &str, token: &str) -> Result<(), Error>;

    /// Returns the next event of a watch, or `None` if there is none. Does not block.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Gone`] if the store is gone.
    fn next_event(&mut self) -> Result<Option<WatchEvent>, Error>;

    /// Returns the descriptor that is readable when a watch fired. Returns `None` if the platform
    /// has no descriptors. If the platform implements [`Store`], it is the descriptor of that
    /// trait.
    ///
    /// Events may also be queued in this process. Call [`FrontendStore::next_event`] until it
    /// returns `None` before you wait on the descriptor.
    #[cfg(feature = "std")]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// Connection to the store for backends, toolstacks and other programs. Its descriptor is that of
/// [`FrontendStore::descriptor`].
#[cfg(feature = "std")]
pub trait Store: FrontendStore + std::os::fd::AsFd {
    /// Sets a node's permissions.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `EACCES` if the node belongs to another domain.
    fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error>;

    /// Ends a watch.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Store`] with `ENOENT` if the connection has no such watch.
    fn unwatch(&mut self, path: &str, token: &str) -> Result<(), Error>;
}

/// Runs `body` in a transaction, and commits it. If the store reports a conflict (`EAGAIN`), runs
/// `body` again in a new transaction, at most 100 more times.
///
/// # Errors
///
/// Returns an error of `body`, which aborts the transaction, or an error of the store.
pub fn transaction<S: FrontendStore + ?Sized, T>(
    store: &mut S,
    mut body: impl FnMut(&mut S) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tries = 0;
    loop {
        store.begin()?;
        let value = match body(store) {
            Ok(value) => value,
            Err(e) => {
                // What went wrong in the body is the news, not the abort.
                let _ = store.end(false);
                return Err(e);
            }
        };
        match store.end(true) {
            Ok(()) => return Ok(value),
            Err(Error::Store { errno: StoreErrno::Eagain, .. }) if tries < 100 => tries += 1,
            Err(e) => return Err(e),
        }
    }
}
