//! Requests of domain 0 to the host, beside those to a hypervisor.

use super::Domain;
use super::control::unexpected;
use crate::protocol::{Answer, Request};
use crate::tables::Tables;
use grantway_hypervisor::{DomId, Error};

impl Domain {
    /// Makes a domain, so that it can boot. Returns true if it is new. The store gets
    /// `/local/domain/N` with its name and number, readable for it.
    ///
    /// # Errors
    ///
    /// - [`Error::Protocol`]: a domain of that number has another name; the name is empty, longer
    ///   than 255 bytes, or contains a `/` or a NUL; this is not domain 0.
    /// - [`Error::NoDomain`]: the number is reserved.
    /// - [`Error::Gone`].
    pub fn create_domain(&self, id: DomId, name: &str) -> Result<bool, Error> {
        let request = Request::Create { domid: id.0, name: name.to_owned() };
        match self.control.request(&request)? {
            (Answer::Created { new }, _) => Ok(new),
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    /// Ends a domain: its processes lose their host, and its part of the store (`/local/domain/N`)
    /// is removed.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoDomain`] if the domain does not exist, [`Error::Protocol`] for domain 0
    /// or if the caller is not domain 0, and [`Error::Gone`] if the host is gone.
    pub fn destroy_domain(&self, id: DomId) -> Result<(), Error> {
        match self.control.request(&Request::Destroy { domid: id.0 })? {
            (Answer::Done, _) => Ok(()),
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    /// Returns the present state of the host.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Protocol`] if the caller is not domain 0, and [`Error::Gone`] if the host
    /// is gone.
    pub fn host_tables(&self) -> Result<Tables, Error> {
        let mut tables = Tables::default();
        let mut from = Some(0);
        while let Some(start) = from {
            match self.control.request(&Request::Tables { from: start })? {
                (
                    Answer::Tables {
                        host_pid,
                        connections,
                        store_connections,
                        event_sets,
                        domains,
                        next,
                    },
                    _,
                ) => {
                    tables.host_pid = host_pid;
                    tables.connections = connections;
                    tables.store_connections = store_connections;
                    tables.event_sets = event_sets;
                    tables.domains.extend(domains);
                    // The numbers only ever rise, whatever a host says.
                    from = next.filter(|&next| next > start);
                }
                (answer, _) => return Err(unexpected(&answer)),
            }
        }
        Ok(tables)
    }
}
