//! Obstacles between a frontend and its vif, in the Xen domain that this machine is.

use crate::footprint::Footprint;
use crate::limits::{raise_gntalloc, roomy};
use grantway_netif::xenbus::Reopen;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// xen-netfront, if it is loaded.
const NETFRONT: &str = "sys/bus/xen/drivers/vif";

/// The reason why a vif cannot be used, and the command that helps.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A driver of the kernel has the vif.
    #[error(
        "vif {devid} is used by the kernel's driver {driver:?}: two frontends would run one vif; \
         take it away: echo vif-{devid} > /sys/bus/xen/drivers/{driver}/unbind; permanently: \
         printf 'blacklist xen-netfront\\ninstall xen-netfront /bin/false\\n' > \
         /etc/modprobe.d/grantway-frontend.conf"
    )]
    Held {
        /// The vif's number.
        devid: u32,
        /// The driver's name in sysfs. xen-netfront has the name `vif`.
        driver: String,
    },
    /// gntalloc gives fewer pages than are needed.
    #[error(
        "the limit of xen-gntalloc for this domain is {limit} pages, and {queues} {needed}; raise \
         it: {}; or use fewer --queues",
        raise_gntalloc(roomy(*.needed))
    )]
    FewPages {
        /// Pages that it gives.
        limit: u64,
        /// Pages that are needed.
        needed: u64,
        /// Words for the need: `2 queues by this policy take`.
        queues: String,
    },
}

/// Checks that vif `devid` of the system below `root` can be run, by a frontend that takes `need`.
///
/// # Errors
///
/// The obstacle.
pub fn check(root: &Path, devid: u32, need: Footprint) -> Result<(), Obstacle> {
    if let Some(driver) = driver_of(root, devid) {
        return Err(Obstacle::Held { devid, driver });
    }
    let limit = std::fs::read_to_string(root.join("sys/module/xen_gntalloc/parameters/limit"));
    match limit.ok().and_then(|limit| limit.trim().parse::<u64>().ok()) {
        Some(limit) if limit < need.grants() => {
            let queues = match need.queues() {
                1 => "1 queue with this policy needs".to_owned(),
                queues => format!("{queues} queues with this policy need"),
            };
            Err(Obstacle::FewPages { limit, needed: need.grants(), queues })
        }
        _ => Ok(()),
    }
}

/// Time within which the kernel gives a new device to a driver that is loaded.
const BOUND_WITHIN: Duration = Duration::from_secs(2);

/// A vif that came back, on its way from the kernel to us: a device that comes back is a new one to
/// the kernel, which gives it to xen-netfront if that is loaded.
#[derive(Debug, Default)]
pub struct TakeAway {
    since: Option<Instant>,
    /// True once a driver has had the vif.
    had: bool,
    /// The thread that unbinds the driver, which waits for the vif's backend.
    thread: Option<JoinHandle<()>>,
}

impl TakeAway {
    /// Takes vif `devid` of the system below `root` from the kernel's driver, or waits until the
    /// driver has had its chance to bind. Returns true if the vif is free; otherwise it is to be
    /// called again. Never blocks.
    pub fn is_free(&mut self, root: &Path, devid: u32, now: Instant) -> bool {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return false;
        }
        self.thread = None;
        let since = *self.since.get_or_insert(now);
        match driver_of(root, devid) {
            Some(driver) => {
                self.had = true;
                let unbind = root.join(format!("sys/bus/xen/drivers/{driver}/unbind"));
                // What it came to shows in the next call.
                let unbinding = move || drop(std::fs::write(unbind, format!("vif-{devid}")));
                self.thread = std::thread::Builder::new().spawn(unbinding).ok();
                false
            }
            None => {
                self.had
                    || !root.join(NETFRONT).exists()
                    || now.duration_since(since) >= BOUND_WITHIN
            }
        }
    }
}

/// Returns true if a driver of the kernel's has vif `devid` of the system below `root`.
#[must_use]
pub fn is_held(root: &Path, devid: u32) -> bool {
    driver_of(root, devid).is_some()
}

/// Returns how vif `devid` of the system below `root` is to come back. Since Linux 7.0 the kernel
/// takes a device that is no longer in Initialising and returns to it for a new one.
#[must_use]
pub fn reopen(root: &Path, devid: u32) -> Reopen {
    let state = root.join(format!("sys/bus/xen/devices/vif-{devid}/state"));
    let initialising =
        std::fs::read_to_string(state).is_ok_and(|state| state.trim() == "Initialising");
    match root.join(NETFRONT).exists() && !initialising {
        true => Reopen::Connected,
        false => Reopen::Initialising,
    }
}

/// Returns the name of the kernel's driver that has a vif.
fn driver_of(root: &Path, devid: u32) -> Option<String> {
    let driver = root.join(format!("sys/bus/xen/devices/vif-{devid}/driver"));
    Some(driver.read_link().ok()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_backend::policy::Policy;
    use std::fs::{create_dir_all, read_to_string, write};
    use std::os::unix::fs::symlink;

    struct System(tempfile::TempDir);

    impl System {
        fn with_limit(limit: &str) -> Self {
            let system = Self(tempfile::tempdir().unwrap());
            let parameters = system.0.path().join("sys/module/xen_gntalloc/parameters");
            create_dir_all(&parameters).unwrap();
            write(parameters.join("limit"), limit).unwrap();
            system
        }

        fn check(&self, devid: u32, policy: Policy, queues: u64) -> Result<(), Obstacle> {
            let need = Footprint::new(policy, queues, u64::MAX);
            check(self.0.path(), devid, need)
        }
    }

    #[test]
    fn a_vif_that_the_kernel_holds_is_left_alone() {
        let system = System::with_limit("1024\n");
        let devices = system.0.path().join("sys/bus/xen/devices");
        for devid in [0, 1] {
            create_dir_all(devices.join(format!("vif-{devid}"))).unwrap();
        }
        symlink("../../../bus/xen/drivers/vif", devices.join("vif-1/driver")).unwrap();
        assert_eq!(system.check(0, Policy::Copy, 1), Ok(()));
        let text = system.check(1, Policy::Copy, 1).unwrap_err().to_string();
        assert!(text.starts_with("vif 1 is used by the kernel's driver \"vif\""), "{text}");
        assert!(text.contains("echo vif-1 > /sys/bus/xen/drivers/vif/unbind"), "{text}");
        assert!(text.contains(r"'blacklist xen-netfront\ninstall xen-netfront /bin/false\n'"));
        assert!(!text.contains('\n') && !text.contains("  "), "{text}");
    }

    /// Calls until the vif is free.
    fn taken_away(root: &Path, take: &mut TakeAway, now: Instant) {
        let guard = Instant::now();
        while !take.is_free(root, 0, now) {
            assert!(guard.elapsed() < Duration::from_secs(120), "{take:?}");
            std::thread::yield_now();
            // As the kernel does it, once the driver has let go.
            let root = root.join("sys/bus/xen");
            if read_to_string(root.join("drivers/vif/unbind")).is_ok_and(|text| text == "vif-0") {
                let _ = std::fs::remove_file(root.join("devices/vif-0/driver"));
            }
        }
    }

    #[test]
    fn a_vif_that_came_back_is_taken_from_the_driver_that_got_it() {
        let system = System::with_limit("1024\n");
        let (root, now) = (system.0.path(), Instant::now());
        let device = root.join("sys/bus/xen/devices/vif-0");
        create_dir_all(&device).unwrap();
        // Nobody can get it.
        assert!(TakeAway::default().is_free(root, 0, now));
        let driver = root.join(NETFRONT);
        create_dir_all(&driver).unwrap();
        write(driver.join("unbind"), "").unwrap();
        // It may get it in a moment, or never.
        let mut take = TakeAway::default();
        assert!(!take.is_free(root, 0, now));
        assert!(!take.is_free(root, 0, now + BOUND_WITHIN - Duration::from_nanos(1)));
        assert!(take.is_free(root, 0, now + BOUND_WITHIN));
        // It gets it.
        let mut take = TakeAway::default();
        assert!(!take.is_free(root, 0, now));
        symlink("../../../bus/xen/drivers/vif", device.join("driver")).unwrap();
        assert!(is_held(root, 0));
        taken_away(root, &mut take, now);
        assert!(!is_held(root, 0));
    }

    #[test]
    fn a_vif_that_netfront_would_get_anew_comes_back_by_connected() {
        let system = System::with_limit("1024\n");
        let root = system.0.path();
        let device = root.join("sys/bus/xen/devices/vif-0");
        create_dir_all(&device).unwrap();
        write(device.join("state"), "Closed\n").unwrap();
        assert_eq!(reopen(root, 0), Reopen::Initialising);
        create_dir_all(root.join(NETFRONT)).unwrap();
        assert_eq!(reopen(root, 0), Reopen::Connected);
        write(device.join("state"), "Initialising\n").unwrap();
        assert_eq!(reopen(root, 0), Reopen::Initialising);
        // The kernel has not made the device yet.
        std::fs::remove_dir_all(&device).unwrap();
        assert_eq!(reopen(root, 0), Reopen::Connected);
    }

    #[test]
    fn pages_that_gntalloc_does_not_give_are_asked_for_beforehand() {
        let system = System::with_limit("1024\n");
        assert_eq!(system.check(0, Policy::Staging, 1), Ok(()));
        let refused = system.check(0, Policy::Copy, 3).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the limit of xen-gntalloc for this domain is 1024 pages, and 3 queues with this policy \
             need 1209; raise it: echo 2048 > /sys/module/xen_gntalloc/parameters/limit; or use fewer \
             --queues"
        );
        let one = System::with_limit("400").check(0, Policy::Copy, 1).unwrap_err();
        assert!(one.to_string().contains("1 queue with this policy needs 405"), "{one}");
        assert_eq!(System::with_limit("4096").check(0, Policy::Staging, 4), Ok(()));
        // A gntalloc that is built in, or of another kernel, says so when it is full.
        assert_eq!(System::with_limit("").check(0, Policy::Staging, 4), Ok(()));
    }
}
