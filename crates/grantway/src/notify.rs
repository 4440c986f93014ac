//! Message to a service manager that the backend is ready (sd_notify(3)).

use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind, Result};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use tracing::warn;

/// The service manager's socket, if there is one.
pub struct ServiceManager(Option<UnixDatagram>);

impl ServiceManager {
    /// Connects to the socket that `NOTIFY_SOCKET` names. A confined process may not connect, so
    /// this must come before the sandbox. If the socket cannot be reached, the log says so, and
    /// guests are served nevertheless.
    pub fn find() -> Self {
        Self::at(std::env::var_os("NOTIFY_SOCKET")).unwrap_or_else(|e| {
            warn!("cannot reach the service manager: {e}");
            Self(None)
        })
    }

    fn at(name: Option<OsString>) -> Result<Self> {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(Self(None)) };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address(&name)?)?;
        Ok(Self(Some(socket)))
    }

    /// Reports to the service manager that the service is ready.
    pub fn ready(&self) {
        if let Some(Err(e)) = self.0.as_ref().map(|socket| socket.send(b"READY=1")) {
            warn!("cannot notify the service manager: {e}");
        }
    }
}

/// Returns the address of a path, or of an abstract name, which begins with `@`.
fn address(name: &OsStr) -> Result<SocketAddr> {
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => {
            let found = format!("NOTIFY_SOCKET={name:?}, expected a path or @NAME");
            Err(Error::new(ErrorKind::InvalidInput, found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(socket: &UnixDatagram) -> String {
        let mut text = [0; 64];
        let len = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    }

    #[test]
    fn the_service_manager_is_found_by_path_or_by_name_or_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        ServiceManager::at(Some(path.into())).unwrap().ready();
        assert_eq!(told(&socket), "READY=1");

        let name = format!("grantway-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        ServiceManager::at(Some(format!("@{name}").into())).unwrap().ready();
        assert_eq!(told(&socket), "READY=1");

        for none in [None, Some(OsString::new())] {
            ServiceManager::at(none).unwrap().ready();
        }
        assert!(ServiceManager::at(Some("vsock:2:1".into())).is_err());
        assert!(ServiceManager::at(Some("/nowhere/at/all".into())).is_err());
    }
}
