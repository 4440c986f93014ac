//! Domains: those that were made, those that run, and the processes that may reach their grants.

use super::Host;
use super::clients::{Reply, os};
use crate::entry::{ENTRY_BYTES, GrantTable};
use crate::protocol::{Answer, DOMAINS_MAX, NAME_MAX, ROWS_MAX, Refusal, domid};
use crate::sys::{Words, shared_memory};
use crate::tables::DomainTable;
use grantway_hypervisor::DomId;
use grantway_ring::PAGE_SIZE;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;

/// A domain that was made.
#[derive(Debug)]
pub(super) struct Record {
    name: String,
    guest: Option<Guest>,
}

/// The process that runs a domain.
#[derive(Debug)]
struct Guest {
    client: u64,
    pid: i32,
    boot: u32,
    /// Address of the memory in the guest's process, once it says so.
    base: Option<u64>,
    ram: OwnedFd,
    table_fd: OwnedFd,
    table: GrantTable,
    /// The client of each domain that may map and copy.
    leases: BTreeMap<DomId, u64>,
}

impl Record {
    pub(super) fn new(name: String) -> Self {
        Self { name, guest: None }
    }
}

impl Host {
    /// Makes the memory and the grant table of a domain that boots, and returns the welcome with
    /// them.
    pub(super) fn hold(&mut self, client: u64, pid: i32, domain: DomId) -> Result<Reply, Refusal> {
        let record = self.domains.get(&domain).ok_or(Refusal::NoDomain { domid: domain.0 })?;
        if let Some((holder, pid)) = record.guest.as_ref().map(|guest| (guest.client, guest.pid))
            && !self.drop_if_gone(holder)
        {
            return Err(Refusal::Held { domid: domain.0, pid: pid as u32 });
        }
        // Memory and table are new at each boot, so an old holder of them reaches nothing of this
        // boot.
        let entries = self.config.grant_entries;
        let bytes = entries as usize * ENTRY_BYTES;
        let table_fd = shared_memory("grantway-grants", bytes).map_err(os("memfd_create"))?;
        let words = Words::of(&table_fd, bytes).map_err(os("mmap"))?;
        let ram_bytes = self.config.ram_pages as usize * PAGE_SIZE;
        let ram = shared_memory("grantway-ram", ram_bytes).map_err(os("memfd_create"))?;
        self.boots = self.boots.wrapping_add(1).max(1);
        let guest = Guest {
            client,
            pid,
            boot: self.boots,
            base: None,
            ram,
            table_fd,
            table: GrantTable::new(words, entries),
            leases: BTreeMap::new(),
        };
        let reply = Reply::new(self.welcome(guest.boot))
            .with(self.lives.fd())?
            .with(&guest.ram)?
            .with(&guest.table_fd)?;
        if let Some(record) = self.domains.get_mut(&domain) {
            record.guest = Some(guest);
        }
        Ok(reply)
    }

    pub(super) fn welcome(&self, boot: u32) -> Answer {
        Answer::Welcome {
            boot,
            ports: self.config.ports.ports(),
            grant_entries: self.config.grant_entries,
            ram_pages: self.config.ram_pages,
        }
    }

    /// Notes that the domain is alive from here on.
    pub(super) fn booted(
        &mut self,
        client: u64,
        domain: DomId,
        base: u64,
    ) -> Result<Reply, Refusal> {
        let guest = self
            .domains
            .get_mut(&domain)
            .and_then(|record| record.guest.as_mut())
            .filter(|guest| guest.client == client && guest.base.is_none())
            .ok_or(Refusal::Confused)?;
        guest.base = Some(base);
        self.lives.set(usize::from(domain.0), guest.boot);
        self.stores.introduce(domain);
        self.flush_stores();
        Ok(Reply::new(Answer::Done))
    }

    /// Lets one process of `mapper` reach the grants of `granter`.
    pub(super) fn lease(
        &mut self,
        client: u64,
        mapper: DomId,
        granter: DomId,
    ) -> Result<Reply, Refusal> {
        // One process of a domain at a time: its pins would clear another's bits.
        let holder = self
            .domains
            .get(&granter)
            .ok_or(Refusal::NoDomain { domid: granter.0 })?
            .guest
            .as_ref()
            .and_then(|guest| guest.leases.get(&mapper).copied());
        if let Some(holder) = holder
            && holder != client
            && !self.drop_if_gone(holder)
        {
            return Err(Refusal::Leased {
                domid: granter.0,
                pid: self.clients.get(&holder).map_or(0, |client| client.pid as u32),
            });
        }
        let guest = self
            .domains
            .get_mut(&granter)
            .and_then(|record| record.guest.as_mut())
            .ok_or(Refusal::NotAlive { domid: granter.0 })?;
        let base = guest.base.ok_or(Refusal::NotAlive { domid: granter.0 })?;
        guest.leases.insert(mapper, client);
        Reply::new(Answer::Grants {
            boot: guest.boot,
            pid: guest.pid,
            base,
            ram_pages: self.config.ram_pages,
            grant_entries: self.config.grant_entries,
        })
        .with(&guest.ram)?
        .with(&guest.table_fd)
    }

    /// Takes back the holds of a process that is gone: its leases, and the domain that it ran.
    pub(super) fn bury(&mut self, client: u64, domain: DomId) {
        for record in self.domains.values_mut() {
            let Some(guest) = record.guest.as_mut() else {
                continue;
            };
            if guest.leases.get(&domain) == Some(&client) {
                guest.leases.remove(&domain);
                let swept = guest.table.sweep(domain);
                if swept > 0 {
                    tracing::debug!(%domain, swept, "ended the holds of a process that died");
                }
            }
        }
        let Some(record) = self.domains.get_mut(&domain) else {
            return;
        };
        if record.guest.as_ref().is_some_and(|guest| guest.client == client) {
            record.guest = None;
            self.lives.set(usize::from(domain.0), 0);
            self.stores.leave(&self.epoll, domain);
            self.flush_stores();
        }
    }

    pub(super) fn create(&mut self, number: u16, name: String) -> Result<Reply, Refusal> {
        let domain = domid(number).ok_or(Refusal::NoDomain { domid: number })?;
        if name.is_empty() || name.len() > NAME_MAX || name.contains(['\0', '/']) {
            return Err(Refusal::Confused);
        }
        if let Some(record) = self.domains.get(&domain) {
            return if record.name == name {
                Ok(Reply::new(Answer::Created { new: false }))
            } else {
                Err(Refusal::Exists { name: record.name.clone() })
            };
        }
        self.stores.create(domain, &name);
        self.flush_stores();
        self.domains.insert(domain, Record::new(name));
        Ok(Reply::new(Answer::Created { new: true }))
    }

    pub(super) fn destroy(&mut self, number: u16) -> Result<Reply, Refusal> {
        let domain = DomId(number);
        if domain == DomId::ZERO {
            return Err(Refusal::Confused);
        }
        if !self.domains.contains_key(&domain) {
            return Err(Refusal::NoDomain { domid: number });
        }
        let processes: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| client.domain == Some(domain))
            .map(|(&id, _)| id)
            .collect();
        for id in processes {
            self.drop_client(id);
        }
        self.domains.remove(&domain);
        self.stores.destroy(&self.epoll, domain);
        self.flush_stores();
        Ok(Reply::new(Answer::Done))
    }

    pub(super) fn tables(&self, from: u16) -> Reply {
        let mut domains: Vec<DomainTable> = self
            .domains
            .range(DomId(from)..)
            .take(DOMAINS_MAX + 1)
            .map(|(&domain, record)| self.table(domain, record))
            .collect();
        let next = (domains.len() > DOMAINS_MAX)
            .then(|| domains.pop())
            .flatten()
            .map(|domain| domain.domid);
        Reply::new(Answer::Tables {
            host_pid: std::process::id(),
            connections: self.clients.len() as u32,
            store_connections: self.stores.len() as u32,
            event_sets: self.channels.sets() as u32,
            domains,
            next,
        })
    }

    fn table(&self, domain: DomId, record: &Record) -> DomainTable {
        let guest = record.guest.as_ref().filter(|guest| guest.base.is_some());
        let census = guest.map(|guest| guest.table.census()).unwrap_or_default();
        let (ports_unbound, ports_bound) = self.channels.usage(domain);
        let store = self.stores.usage(domain);
        DomainTable {
            domid: domain.0,
            name: record.name.clone(),
            pid: guest.map(|guest| guest.pid as u32),
            boot: guest.map_or(0, |guest| guest.boot),
            services: self
                .clients
                .values()
                .filter(|client| client.domain == Some(domain) && !client.guest)
                .map(|client| client.pid as u32)
                .take(ROWS_MAX)
                .collect(),
            ports_unbound,
            ports_bound,
            grants: census.granted,
            grants_held: census.held,
            leases: guest
                .into_iter()
                .flat_map(|guest| &guest.leases)
                .map(|(mapper, client)| {
                    (mapper.0, self.clients.get(client).map_or(0, |client| client.pid as u32))
                })
                .take(ROWS_MAX)
                .collect(),
            store_connections: self.stores.connections_of(domain),
            store_nodes: store.nodes as u32,
            store_watches: store.watches as u32,
            store_transactions: store.transactions as u32,
        }
    }
}
