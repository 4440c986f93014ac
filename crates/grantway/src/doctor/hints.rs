//! Commands for the operator, which differ between Xen and the embedded host.

use super::facts::platform::Role;
use super::facts::vifs::VifNodes;
use std::path::{Path, PathBuf};

/// The place in which the backend runs, and the commands for this place.
#[derive(Debug, Clone)]
pub struct Hints {
    /// Folder of the embedded host, if the backend runs on one.
    host: Option<PathBuf>,
    unit: &'static str,
}

impl Hints {
    /// Makes hints for Xen, where the backend is a unit of systemd.
    pub fn on_xen(role: Role) -> Self {
        let unit = match role {
            Role::Driver => "grantway-backend-domU",
            _ => "grantway-backend",
        };
        Self { host: None, unit }
    }

    /// Makes hints for an embedded host.
    pub fn on_embedded(dir: &Path) -> Self {
        Self { host: Some(dir.to_owned()), unit: "" }
    }

    /// Returns true if hotplug scripts set up the interfaces.
    pub fn is_scripted(&self) -> bool {
        self.host.is_none()
    }

    /// Returns the command that starts the backend.
    pub fn start(&self) -> String {
        match &self.host {
            Some(dir) => format!("grantway backend --host {}", quoted(&dir.to_string_lossy())),
            None => format!("systemctl start {}", self.unit),
        }
    }

    /// Returns the command that starts the backend now and at each boot.
    pub fn enable(&self) -> String {
        match &self.host {
            Some(_) => self.start(),
            None => format!("systemctl enable --now {}", self.unit),
        }
    }

    /// Returns the command that restarts the backend.
    pub fn restart(&self) -> String {
        match &self.host {
            Some(_) => format!("stop it, then: {}", self.start()),
            None => format!("systemctl restart {}", self.unit),
        }
    }

    /// Returns the command that shows the backend's log.
    pub fn log(&self) -> String {
        match &self.host {
            Some(_) => "read the backend's standard error".into(),
            None => format!("journalctl -u {} -n 20", self.unit),
        }
    }

    /// Returns the command that detaches a vif.
    pub fn detach(&self, vif: &VifNodes) -> String {
        let (domain, devid) = (vif.domain, vif.devid);
        match &self.host {
            Some(dir) => format!(
                "grantway detach --host {} --domain {domain} --devid {devid} --force",
                quoted(&dir.to_string_lossy())
            ),
            None => format!("xl network-detach {domain} {devid}"),
        }
    }

    /// Returns the command that runs a vif's hotplug script again. Without a script, returns the
    /// command that shows the log of the scripts.
    pub fn hotplug(&self, vif: &VifNodes) -> String {
        match &vif.script {
            Some(script) => format!(
                "XENBUS_PATH={} vif={} {} online type_if=vif",
                quoted(&vif.path),
                vif.default_name(),
                quoted(script)
            ),
            None => SCRIPTS_LOG.into(),
        }
    }
}

/// Command that shows the log of the hotplug scripts.
pub const SCRIPTS_LOG: &str = "tail /var/log/xen/xen-hotplug.log";

/// Returns a word in a form that a shell takes literally.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell() {
        assert_eq!(quoted("/tmp/gw"), "/tmp/gw");
        assert_eq!(quoted("a b'; rm"), r"'a b'\''; rm'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn each_place_has_its_commands() {
        let vif =
            VifNodes { script: Some("/etc/xen/scripts/vif-bridge".into()), ..VifNodes::of(3, 1) };
        let xen = Hints::on_xen(Role::Dom0);
        assert_eq!(xen.start(), "systemctl start grantway-backend");
        assert_eq!(
            Hints::on_xen(Role::Driver).restart(),
            "systemctl restart grantway-backend-domU"
        );
        assert_eq!(xen.detach(&vif), "xl network-detach 3 1");
        assert_eq!(
            xen.hotplug(&vif),
            "XENBUS_PATH=/local/domain/0/backend/vif/3/1 vif=vif3.1 \
             /etc/xen/scripts/vif-bridge online type_if=vif"
        );
        assert_eq!(xen.hotplug(&VifNodes::of(3, 1)), SCRIPTS_LOG);
        let here = Hints::on_embedded(Path::new("/tmp/my gw"));
        assert!(!here.is_scripted() && xen.is_scripted());
        assert_eq!(here.start(), "grantway backend --host '/tmp/my gw'");
        assert_eq!(
            here.detach(&vif),
            "grantway detach --host '/tmp/my gw' --domain 3 --devid 1 --force"
        );
    }
}
