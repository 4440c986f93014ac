//! The guest's one connection to the store, for all who ask for one.

use crate::store::StorePage;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use grantway_hypervisor::{Error, FrontendStore, StoreErrno, StoreOps, WatchEvent};
use grantway_xenstore::Client;
use spin::Mutex;

/// Most bytes of events that wait, in a guest that may have 8 MiB.
const EVENTS_BYTES: usize = 32 << 10;

/// The connection, and the events that came for each of its users.
struct Shared {
    client: Client<StorePage>,
    users: Vec<User>,
    next: u32,
}

/// A user of the connection.
struct User {
    number: u32,
    /// Its watches: path and token.
    watches: Vec<(String, String)>,
    events: VecDeque<WatchEvent>,
}

impl User {
    /// Notes that the watch of this token fired. A backend may write any number of nodes below a
    /// watched one, so an event is told as one of the watch itself, and once.
    fn tell(&mut self, token: &str) {
        let watch = self.watches.iter().find(|(_, known)| known == token);
        let Some((path, token)) = watch.cloned() else { return };
        let event = WatchEvent { path, token };
        if !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }
}

/// The connection.
#[derive(Clone)]
pub(crate) struct Stores(Arc<Mutex<Shared>>);

impl Stores {
    pub fn new(page: StorePage) -> Self {
        let client = client(page);
        Self(Arc::new(Mutex::new(Shared { client, users: Vec::new(), next: 0 })))
    }

    /// Returns a connection for one more user.
    pub fn user(&self) -> StoreUser {
        let mut shared = self.0.lock();
        shared.next += 1;
        let number = shared.next;
        shared.users.push(User { number, watches: Vec::new(), events: VecDeque::new() });
        StoreUser { shared: Arc::clone(&self.0), number, within: false }
    }

    /// Returns true if an event waits for one of the users: what wakes for it was taken already.
    pub fn has_events(&self) -> bool {
        let shared = self.0.lock();
        shared.client.has_events() || shared.users.iter().any(|user| !user.events.is_empty())
    }

    /// Goes on over another page, after the guest was restored. All watches are set again, and
    /// fire.
    ///
    /// # Errors
    ///
    /// The store refuses a watch.
    pub fn renew(&self, page: StorePage) -> Result<(), Error> {
        let Shared { client, users, .. } = &mut *self.0.lock();
        *client = self::client(page);
        for user in users {
            user.events.clear();
            for (path, token) in &user.watches {
                client.watch(path, &marked(user.number, token))?;
            }
        }
        Ok(())
    }
}

/// Returns a client over the page.
fn client(page: StorePage) -> Client<StorePage> {
    Client::over(page).named("xenstore").patient().events_within(EVENTS_BYTES)
}

/// Returns a token that tells whose it is.
fn marked(number: u32, token: &str) -> String {
    format!("{number}:{token}")
}

/// One user's connection.
pub(crate) struct StoreUser {
    shared: Arc<Mutex<Shared>>,
    number: u32,
    /// True within a transaction of this user.
    within: bool,
}

impl StoreUser {
    fn with<T>(&self, work: impl FnOnce(&mut Client<StorePage>) -> T) -> T {
        work(&mut self.shared.lock().client)
    }
}

impl StoreOps for StoreUser {
    fn read(&mut self, path: &str) -> Result<Vec<u8>, Error> {
        self.with(|client| client.read(path))
    }

    fn write(&mut self, path: &str, value: &[u8]) -> Result<(), Error> {
        self.with(|client| client.write(path, value))
    }

    fn remove(&mut self, path: &str) -> Result<(), Error> {
        self.with(|client| client.remove(path))
    }

    fn list(&mut self, path: &str) -> Result<Vec<String>, Error> {
        self.with(|client| client.list(path))
    }
}

impl FrontendStore for StoreUser {
    /// Begins a transaction. While one user has one, what others read and write is in it, too: one
    /// thread ends what it began before it does anything else.
    fn begin(&mut self) -> Result<(), Error> {
        self.with(Client::begin)?;
        self.within = true;
        Ok(())
    }

    fn end(&mut self, commit: bool) -> Result<(), Error> {
        self.within = false;
        self.with(|client| client.end(commit))
    }

    fn watch(&mut self, path: &str, token: &str) -> Result<(), Error> {
        let Shared { client, users, .. } = &mut *self.shared.lock();
        // Before the answer: the first event may come sooner than that.
        let user = users.iter_mut().find(|user| user.number == self.number);
        if let Some(user) = user {
            user.watches.push((path.to_string(), token.to_string()));
        }
        let watched = client.watch(path, &marked(self.number, token));
        if let (Err(_), Some(user)) = (&watched, users.iter_mut().find(|u| u.number == self.number))
        {
            user.watches.pop();
        }
        watched
    }

    fn next_event(&mut self) -> Result<Option<WatchEvent>, Error> {
        let Shared { client, users, .. } = &mut *self.shared.lock();
        while let Some(event) = client.next_event()? {
            let Some((number, token)) = event.token.split_once(':') else { continue };
            let user = users.iter_mut().find(|user| number.parse() == Ok(user.number));
            if let Some(user) = user {
                user.tell(token);
            }
        }
        let user = users.iter_mut().find(|user| user.number == self.number);
        let gone =
            || Error::Store { what: "watch", path: String::new(), errno: StoreErrno::Enoent };
        Ok(user.ok_or_else(gone)?.events.pop_front())
    }
}

impl Drop for StoreUser {
    fn drop(&mut self) {
        if self.within {
            let _ = self.end(false);
        }
        let Shared { client, users, .. } = &mut *self.shared.lock();
        let Some(at) = users.iter().position(|user| user.number == self.number) else { return };
        let user = users.swap_remove(at);
        for (path, token) in &user.watches {
            let _ = client.unwatch(path, &marked(user.number, token));
        }
    }
}
