//! What domain 0 asks of the host beside what a hypervisor is asked.

use super::Domain;
use super::control::unexpected;
use crate::protocol::{Answer, Request};
use crate::tables::Tables;
use grantway_hypervisor::{DomId, Error};

impl Domain {
    /// Makes a domain, so that it can boot; whether it is new. The store gets
    /// `/local/domain/N` with its name and number, readable for it.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] when one of that number has another name, when the
    /// name is empty, longer than 255 bytes or has a `/` in it, or from another
    /// domain than 0; [`Error::Gone`].
    pub fn create_domain(&self, id: DomId, name: &str) -> Result<bool, Error> {
        let request = Request::Create { domid: id.0, name: name.to_owned() };
        match self.control.request(&request)? {
            (Answer::Created { new }, _) => Ok(new),
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    /// Ends a domain: its processes lose their host, its part of the store
    /// (`/local/domain/N`) is removed.
    ///
    /// # Errors
    ///
    /// [`Error::NoDomain`]; [`Error::Protocol`] for domain 0, or from another
    /// domain; [`Error::Gone`].
    pub fn destroy_domain(&self, id: DomId) -> Result<(), Error> {
        match self.control.request(&Request::Destroy { domid: id.0 })? {
            (Answer::Done, _) => Ok(()),
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    /// What the host holds now.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] from another domain than 0, [`Error::Gone`].
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
                    // Only ever onwards, whatever a host says.
                    from = next.filter(|&next| next > start);
                }
                (answer, _) => return Err(unexpected(&answer)),
            }
        }
        Ok(tables)
    }
}
