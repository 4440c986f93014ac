//! Configuration of a backend.

use crate::worker::Settings;
use grantway_ports::Port;
use grantway_vector::Secret;
use grantway_vector::path::Nodes;
use std::path::PathBuf;

/// Configuration of a backend.
pub struct BackendConfig {
    /// Settings that the control thread and the workers read.
    pub settings: Settings,
    /// Number of workers that move packets; 0 means 1.
    pub workers: usize,
    /// True if each worker has a thread. Otherwise the caller moves packets with
    /// [`Backend::serve`](crate::Backend::serve) or [`RingServer::serve`](crate::RingServer::serve),
    /// again and again: no descriptor tells of packets.
    pub threads: bool,
    /// Port beside the guests on the backend's own bridge, if there is one.
    pub uplink: Option<Box<dyn Port>>,
    /// Nodes for packets on the bridge. With [`Nodes::by_rules`], once rules are loaded
    /// ([`Backend::load`](crate::Backend::load), [`RingServer::load`](crate::RingServer::load)), all
    /// packets go through the nodes.
    pub nodes: Nodes,
    /// Folder of the journals, which is made if it is missing. A successor with the same folder takes
    /// over the connections. If a journal cannot be made, its vif is served, and a warning says that a
    /// successor will begin anew.
    pub run_folder: PathBuf,
}

impl BackendConfig {
    /// Makes a configuration with one worker that has a thread, no uplink, and a bridge without rules
    /// for the vifs that [`Member`](grantway_ports::Member) connects. `run_folder` has the journals of
    /// this domain's backends; a successor must name the same one.
    ///
    /// ```
    /// use grantway_backend::{BackendConfig, Settings};
    /// use grantway_vector::Secret;
    ///
    /// let config = BackendConfig {
    ///     settings: Settings { queues: 4, ..Settings::default() },
    ///     workers: 2,
    ///     ..BackendConfig::new("/run/example", Secret::random()?)
    /// };
    /// assert!(config.threads && config.uplink.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn new(run_folder: impl Into<PathBuf>, secret: Secret) -> Self {
        Self {
            settings: Settings::default(),
            workers: 1,
            threads: true,
            uplink: None,
            nodes: Nodes::bridge(secret),
            run_folder: run_folder.into(),
        }
    }
}
