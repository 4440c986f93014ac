//! Obstacles between a frontend and its vif, in the Xen domain that this machine is.

use crate::footprint::Footprint;
use crate::limits::{raise_gntalloc, roomy};
use grantway_netif::xenbus::Reopen;
use std::path::Path;

/// The reason why a vif cannot be used, and the command that helps.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A driver of the kernel has the vif.
    #[error(
        "vif {devid} is held by the kernel's driver {driver:?}: two frontends would run one vif; \
         take it away: echo vif-{devid} > /sys/bus/xen/drivers/{driver}/unbind; and for good: \
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
        "xen-gntalloc gives {limit} pages to all of this domain, and {queues} \
         {needed}; raise it: {}; or use fewer --queues",
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
                1 => "1 queue by this policy takes".to_owned(),
                queues => format!("{queues} queues by this policy take"),
            };
            Err(Obstacle::FewPages { limit, needed: need.grants(), queues })
        }
        _ => Ok(()),
    }
}

/// Takes vif `devid` of the system below `root` from the driver that the kernel has given it: a
/// device that comes back is a new one to the kernel. Returns when the driver has let go.
///
/// # Errors
///
/// The driver cannot be unbound.
pub fn take_away(root: &Path, devid: u32) -> Result<(), Obstacle> {
    let Some(driver) = driver_of(root, devid) else { return Ok(()) };
    let unbind = root.join(format!("sys/bus/xen/drivers/{driver}/unbind"));
    let unbound = std::fs::write(unbind, format!("vif-{devid}"));
    // It may have let go by itself.
    if unbound.is_err() && driver_of(root, devid).is_some() {
        return Err(Obstacle::Held { devid, driver });
    }
    Ok(())
}

/// Returns how vif `devid` of the system below `root` is to come back. Since Linux 7.0 the kernel
/// takes a device that is no longer in Initialising and returns to it for a new one, and gives it
/// to xen-netfront if that is loaded.
pub fn reopen(root: &Path, devid: u32) -> Reopen {
    let netfront = root.join("sys/bus/xen/drivers/vif");
    let state = root.join(format!("sys/bus/xen/devices/vif-{devid}/state"));
    match std::fs::read_to_string(state) {
        Ok(state) if state.trim() != "Initialising" && netfront.exists() => Reopen::Connected,
        _ => Reopen::Initialising,
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
        assert!(text.starts_with("vif 1 is held by the kernel's driver \"vif\""), "{text}");
        assert!(text.contains("echo vif-1 > /sys/bus/xen/drivers/vif/unbind"), "{text}");
        assert!(text.contains(r"'blacklist xen-netfront\ninstall xen-netfront /bin/false\n'"));
        assert!(!text.contains('\n') && !text.contains("  "), "{text}");
    }

    #[test]
    fn a_vif_that_came_back_is_taken_from_the_driver_that_got_it() {
        let system = System::with_limit("1024\n");
        let root = system.0.path();
        let (device, driver) =
            (root.join("sys/bus/xen/devices/vif-0"), root.join("sys/bus/xen/drivers/vif"));
        create_dir_all(&device).unwrap();
        // Nobody has it, and nobody can get it.
        write(device.join("state"), "Closed\n").unwrap();
        assert_eq!(take_away(root, 0), Ok(()));
        assert_eq!(reopen(root, 0), Reopen::Initialising);
        // It had it, and would get it again.
        create_dir_all(&driver).unwrap();
        write(driver.join("unbind"), "").unwrap();
        assert_eq!(reopen(root, 0), Reopen::Connected);
        write(device.join("state"), "Initialising\n").unwrap();
        assert_eq!(reopen(root, 0), Reopen::Initialising);
        symlink("../../../bus/xen/drivers/vif", device.join("driver")).unwrap();
        assert_eq!(take_away(root, 0), Ok(()));
        assert_eq!(read_to_string(driver.join("unbind")).unwrap(), "vif-0");
        // What cannot be unbound is named.
        std::fs::remove_dir_all(&driver).unwrap();
        let held = Obstacle::Held { devid: 0, driver: "vif".to_owned() };
        assert_eq!(take_away(root, 0), Err(held));
    }

    #[test]
    fn pages_that_gntalloc_does_not_give_are_asked_for_beforehand() {
        let system = System::with_limit("1024\n");
        assert_eq!(system.check(0, Policy::Staging, 1), Ok(()));
        let refused = system.check(0, Policy::Copy, 2).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "xen-gntalloc gives 1024 pages to all of this domain, and 2 queues by this policy take \
             1063; raise it: echo 2048 > /sys/module/xen_gntalloc/parameters/limit; or use fewer \
             --queues"
        );
        let one = System::with_limit("512").check(0, Policy::Copy, 1).unwrap_err();
        assert!(one.to_string().contains("1 queue by this policy takes 533"), "{one}");
        assert_eq!(System::with_limit("4096").check(0, Policy::Staging, 4), Ok(()));
        // A gntalloc that is built in, or of another kernel, says so when it is full.
        assert_eq!(System::with_limit("").check(0, Policy::Staging, 4), Ok(()));
    }
}
