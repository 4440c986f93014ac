//! Start of worker threads.

use grantway_backend::{Backend, BackendConfig, OnWorker, Settings, StartError, WaitMode};
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_hypervisor::DomId;
use grantway_ports::{Null, Port};
use grantway_vector::Secret;
use std::sync::{Arc, Mutex};
use std::thread::{ThreadId, current};

/// Backend with several workers, in a folder of its own.
struct Site {
    folder: tempfile::TempDir,
    _host: HostGuard,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::spawn(folder.path()).unwrap();
        Self { folder, _host: host }
    }

    fn start(&self, workers: usize, on_worker: OnWorker) -> Result<Backend, StartError> {
        let config = BackendConfig {
            settings: Settings { mode: WaitMode::Interrupt, on_worker, ..Settings::default() },
            workers,
            ..BackendConfig::new(self.folder.path(), Secret(1, 2))
        };
        let domain = Domain::connect(self.folder.path(), DomId::ZERO, Role::Service).unwrap();
        Backend::start(domain, config, Box::new(|_| Ok(Box::new(Null::new()) as Box<dyn Port>)))
    }
}

#[test]
fn each_worker_thread_first_runs_the_given_function() {
    let site = Site::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let on_worker: OnWorker = Arc::new(move || {
        let name = current().name().map(str::to_owned);
        note.lock().unwrap().push((current().id(), name));
        Ok(())
    });
    let backend = site.start(3, on_worker).unwrap();
    // All of it was done when the start returned.
    let seen = seen.lock().unwrap().clone();
    let mut threads: Vec<ThreadId> = seen.iter().map(|&(id, _)| id).collect();
    threads.sort_by_key(|id| format!("{id:?}"));
    threads.dedup();
    assert_eq!(threads.len(), 3, "{seen:?}");
    assert!(!threads.contains(&current().id()));
    assert!(seen.iter().all(|(_, name)| name.as_deref() == Some("worker")), "{seen:?}");
    drop(backend);
}

#[test]
fn a_worker_that_cannot_begin_ends_the_start() {
    let site = Site::new();
    let refuse: OnWorker = Arc::new(|| Err(std::io::Error::other("no box")));
    let error = site.start(2, refuse).err().expect("a refusal").to_string();
    assert!(error.contains("prepare a worker thread") && error.contains("no box"), "{error}");
    // Nothing of it stays: another backend of the domain starts.
    drop(site.start(2, Arc::new(|| Ok(()))).unwrap());
}
