//! Obstacles between a frontend and its vif, in the Xen domain that this machine is.

use crate::footprint::Footprint;
use crate::limits::{raise_gntalloc, roomy};
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
    let driver = root.join(format!("sys/bus/xen/devices/vif-{devid}/driver"));
    if let Some(driver) = driver.read_link().ok().as_deref().and_then(Path::file_name) {
        let driver = driver.to_string_lossy().into_owned();
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

#[cfg(test)]
mod tests {
    use super::*;
    use grantway_backend::policy::Policy;
    use std::fs::{create_dir_all, write};
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
