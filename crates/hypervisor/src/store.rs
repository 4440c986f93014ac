//! The store: xenstore, as a domain sees it.

use crate::{DomId, Error, StoreErrno};
use alloc::string::String;
use alloc::vec::Vec;

/// A watch that fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// The path that changed: the watched one or one below it.
    pub path: String,
    /// The word given when the watch was set.
    pub token: String,
}

/// Rights of a domain on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Nothing (`n`).
    None,
    /// Read (`r`).
    Read,
    /// Write (`w`).
    Write,
    /// Both (`b`).
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

/// Reads and writes, inside a transaction or outside.
pub trait StoreOps {
    /// The value of a node.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] with `ENOENT` when it is not there.
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error>;

    /// Sets a node, making it and its parents where they are not there.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]: `EACCES`, `EQUOTA`, `EINVAL` ...
    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error>;

    /// Removes a node and all below it.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; `ENOENT` when its parent is not there.
    fn remove(&mut self, path: &str) -> Result<(), Error>;

    /// The names of a node's children.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; `ENOENT` when it is not there.
    fn list(&mut self, path: &str) -> Result<Vec<String>, Error>;

    /// The value of a node as text, or `None` when it is not there.
    ///
    /// # Errors
    ///
    /// As [`StoreOps::read`], but for `ENOENT`.
    fn read_text(&mut self, path: &str) -> Result<Option<String>, Error> {
        match self.read(path) {
            Ok(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            Err(Error::Store { errno: StoreErrno::Enoent, .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// A connection to the store, as a frontend uses it. Paths that do not begin with `/` are taken
/// from the domain's own folder, `/local/domain/N`.
///
/// `Send`, so that a vif may be given to a thread.
pub trait FrontendStore: StoreOps + Send {
    /// Begins a transaction: until its end, reads and writes are its own. One
    /// at a time. Use [`transaction`] rather, which tries again.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; `EBUSY` when one is under way, `ENOSPC` when the
    /// domain has too many.
    fn begin(&mut self) -> Result<(), Error>;

    /// Ends the transaction, keeping its writes or not.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] with `EAGAIN` when somebody else changed what it read.
    fn end(&mut self, commit: bool) -> Result<(), Error>;

    /// Watches a path and all below it. Fires once at once.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]: `EEXIST`, `EQUOTA`.
    fn watch(&mut self, path: &str, token: &str) -> Result<(), Error>;

    /// The next watch that fired, without blocking.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] when the store is.
    fn next_event(&mut self) -> Result<Option<WatchEvent>, Error>;

    /// Returns the descriptor that is readable when a watch fired; none if the platform has no
    /// descriptors. A platform of programs has one, the same as that of its [`Store`]. Events may
    /// also be queued already: call [`FrontendStore::next_event`] until it gives `None` before
    /// waiting on this.
    #[cfg(feature = "std")]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// A connection to the store, as backends, toolstacks and other programs use it: with a descriptor,
/// that of [`FrontendStore::descriptor`].
#[cfg(feature = "std")]
pub trait Store: FrontendStore + std::os::fd::AsFd {
    /// Sets a node's permissions.
    ///
    /// # Errors
    ///
    /// [`Error::Store`]; `EACCES` when the node is not ours.
    fn set_permissions(&mut self, path: &str, permissions: &[Permission]) -> Result<(), Error>;

    /// Ends a watch.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] with `ENOENT` when there is none.
    fn unwatch(&mut self, path: &str, token: &str) -> Result<(), Error>;
}

/// Runs `body` in a transaction, again from its start for as long as the store
/// says that somebody else came between (at most 100 times).
///
/// # Errors
///
/// What `body` gives, or the store.
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
