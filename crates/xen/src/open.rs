//! The system that this process runs on: if it is Xen, the places of its devices, and our domain.

use crate::store::StoreAt;
use grantway_hypervisor::{DomId, Error};
use std::path::PathBuf;

/// Reason why Xen cannot be used. The message names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The machine runs on another hypervisor, or on none.
    #[error("this machine does not run on Xen ({found}); use the embedded host: grantway host")]
    NotXen {
        /// The file that was read, and its content.
        found: String,
    },
    /// xenstored left its socket behind, and does not run.
    #[error("found no process that listens on {}, expected xenstored; start it", socket.display())]
    StoreDead {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The kernel's connection to the store has no xenstored at its other end.
    #[error(
        "no answer from {} in {seconds} s: xenstored does not run; start it in domain 0",
        device.display()
    )]
    StoreSilent {
        /// Path of the device.
        device: PathBuf,
        /// Seconds that we waited.
        seconds: u64,
    },
    /// The store does not have the number of this domain.
    #[error(
        "xenstore has no `domid` in this domain's folder; \
         its toolstack must write it, as xl does: xenstore-write /local/domain/N/domid N"
    )]
    NoDomid,
    /// The platform returned an error.
    #[error(transparent)]
    Platform(#[from] Error),
}

/// Places of files on a system.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Returns the places on the system that this process runs on.
    pub fn system() -> Self {
        Self { root: "/".into() }
    }

    /// Returns the folder of the devices.
    fn devices(&self) -> PathBuf {
        self.root.join("dev/xen")
    }

    /// Returns the path of a device.
    pub fn device(&self, name: &str) -> PathBuf {
        self.devices().join(name)
    }

    /// Returns the path of a driver's parameter `limit`.
    pub fn limit(&self, module: &str) -> PathBuf {
        self.root.join("sys/module").join(module).join("parameters/limit")
    }

    /// Returns an error if this is not Xen.
    pub fn judge(&self) -> Result<(), OpenError> {
        let file = "sys/hypervisor/type";
        let hypervisor = std::fs::read_to_string(self.root.join(file)).ok();
        match hypervisor.as_deref().map(str::trim) {
            Some("xen") => Ok(()),
            Some(other) => Err(OpenError::NotXen { found: format!("/{file} says {other:?}") }),
            // In a container sysfs may be missing although the devices are there.
            None if self.devices().is_dir() => Ok(()),
            None => {
                Err(OpenError::NotXen { found: format!("there is neither /{file} nor /dev/xen") })
            }
        }
    }

    /// Returns the place of the store.
    pub fn store(&self) -> StoreAt {
        let sockets = ["run", "var/run"].map(|run| self.root.join(run).join("xenstored/socket"));
        StoreAt::find(&sockets, self.device("xenbus"))
    }

    /// Returns true if the kernel says that this is the first domain.
    fn is_control(&self) -> bool {
        let capabilities = std::fs::read_to_string(self.root.join("proc/xen/capabilities"));
        capabilities.is_ok_and(|text| text.split([',', '\n']).any(|word| word == "control_d"))
    }

    /// Returns the kind of domain, if the kernel says it: `PV`, `PVH` or `HVM`.
    pub fn kind(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join("sys/hypervisor/guest_type")).ok()?;
        Some(text.trim().escape_debug().to_string())
    }

    /// Returns the number of this domain.
    pub fn domain(&self, store: &StoreAt) -> Result<DomId, OpenError> {
        match store.own_domain()? {
            Some(domain) => Ok(domain),
            None if self.is_control() => Ok(DomId::ZERO),
            None => Err(OpenError::NoDomid),
        }
    }

    /// Returns the places below another root, for tests.
    #[cfg(test)]
    pub fn under(root: &std::path::Path) -> Self {
        Self { root: root.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::net::UnixListener;

    struct System(tempfile::TempDir);

    impl System {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn with(self, file: &str, text: &str) -> Self {
            let path = self.0.path().join(file);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
            self
        }

        fn layout(&self) -> Layout {
            Layout::under(self.0.path())
        }

        fn refusal(&self) -> String {
            let layout = self.layout();
            let error = match layout.judge() {
                Ok(()) => layout.domain(&layout.store()).unwrap_err(),
                Err(error) => error,
            };
            let text = error.to_string().replace(&self.0.path().display().to_string(), "");
            assert!(!text.contains('\n') && !text.contains("  "), "{text}");
            text
        }
    }

    #[test]
    fn a_machine_without_xen() {
        assert_eq!(
            System::new().refusal(),
            "this machine does not run on Xen (there is neither /sys/hypervisor/type nor \
             /dev/xen); use the embedded host: grantway host"
        );
        let other = System::new().with("sys/hypervisor/type", "z/VM\n");
        assert!(other.refusal().contains("(/sys/hypervisor/type says \"z/VM\")"));
    }

    #[test]
    fn xen_without_a_store() {
        let xen = || System::new().with("sys/hypervisor/type", "xen\n");
        assert_eq!(
            xen().refusal(),
            "open /dev/xen/xenbus: No such file or directory (os error 2); in domain 0 start \
             xenstored; in a guest look for xenbus in dmesg"
        );
        let dead = xen();
        let socket = dead.0.path().join("var/run/xenstored/socket");
        create_dir_all(socket.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&socket).unwrap());
        assert_eq!(
            dead.refusal(),
            "found no process that listens on /var/run/xenstored/socket, expected xenstored; \
             start it"
        );
    }

    #[test]
    fn a_domain_with_the_socket_of_xenstored_is_domain_0() {
        let system = System::new().with("dev/xen/xenbus", "");
        let socket = system.0.path().join("run/xenstored/socket");
        create_dir_all(socket.parent().unwrap()).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let layout = system.layout();
        assert!(layout.judge().is_ok());
        assert_eq!(layout.store(), StoreAt::Socket(socket));
        assert_eq!(layout.domain(&layout.store()).unwrap(), DomId::ZERO);
    }

    #[test]
    fn the_kernel_names_the_first_domain() {
        let zero = |text| System::new().with("proc/xen/capabilities", text).layout().is_control();
        assert!(zero("control_d\n") && zero("x,control_d"));
        assert!(!zero("") && !zero("control_domain\n") && !System::new().layout().is_control());
        assert!(OpenError::NoDomid.to_string().ends_with("xenstore-write /local/domain/N/domid N"));
    }
}
