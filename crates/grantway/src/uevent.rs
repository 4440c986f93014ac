//! The events `online` and `remove` of a vif, for which udev runs XAPI's hotplug script. With
//! xen-netback the kernel raises them. A process raises an event by writing a word to a file of
//! sysfs, and the sandbox of a backend forbids this. So a helper process is started before the
//! sandbox. The helper writes only these words, to the files of the vifs that its backend names. It
//! ends with its backend.

use grantway_backend::{PlugEvent, VifId};
use grantway_command::error::CommandError;
use grantway_sandbox::{Files, Host, Sandbox, Use};
use std::fs::OpenOptions;
use std::io::{BufRead, ErrorKind, Result, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Once;
use tracing::{debug, warn};

/// The command that is the helper.
pub const COMMAND: &str = "uevent-helper";

/// Help of the command.
pub const HELP: &str = "\
A backend starts it. Each line names an event, `online` or `remove`, and a vif.

Example:
  echo online 1 0 | grantway uevent-helper";

const ONLINE: &str = "online";
const REMOVE: &str = "remove";

/// A running helper.
pub struct Helper(ChildStdin);

impl Helper {
    /// Starts the helper. If it cannot be started, the log says so, and guests are served
    /// nevertheless.
    pub fn start() -> Option<Self> {
        Self::spawn()
            .map_err(|e| warn!("cannot start the uevent helper; XAPI waits for its events: {e}"))
            .ok()
    }

    fn spawn() -> Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("grantway")
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let input = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
        // A helper that hangs must not stop the control thread.
        rustix::io::ioctl_fionbio(&input, true)?;
        Ok(Self(input))
    }

    /// Raises an event of the vif, by a message to the helper. Never waits.
    pub fn raise(&self, vif: VifId, event: PlugEvent) {
        let word = match event {
            PlugEvent::Online => ONLINE,
            PlugEvent::Remove => REMOVE,
        };
        // A line is less than a pipe takes at once.
        let line = format!("{word} {} {}\n", vif.domain, vif.devid);
        if let Err(e) = (&self.0).write_all(line.as_bytes()) {
            warn!("{vif}: event `{word}` not raised, the helper has ended: {e}");
        }
    }
}

/// Runs the helper, until its backend ends.
///
/// # Errors
///
/// The input cannot be read.
pub fn run() -> std::result::Result<(), CommandError> {
    let mut sandbox = Sandbox::enter(Host::None);
    // Landlock knows a folder by its place, and the folders of later vifs do not exist yet.
    sandbox.close(&Files::new().with("/sys/devices", Use::Write));
    serve(std::io::stdin().lock(), Path::new("/")).map_err(CommandError::failed)
}

/// Raises the event that each line of the input names, on the system below `root`.
fn serve(input: impl BufRead, root: &Path) -> Result<()> {
    let told = Once::new();
    for line in input.lines() {
        let line = line?;
        let Some((word, domain, devid)) = parse(&line) else { continue };
        match raise(root, word, domain, devid) {
            Ok(()) => debug!("vif{domain}.{devid}: event `{word}` raised"),
            // The vif went away, or this kernel has no bus of backends.
            Err(e) if e.kind() == ErrorKind::NotFound => debug!("vif{domain}.{devid}: {e}"),
            Err(e) => told.call_once(|| {
                warn!("vif{domain}.{devid}: event `{word}` not raised: {e}; only XAPI needs it");
            }),
        }
    }
    Ok(())
}

fn parse(line: &str) -> Option<(&'static str, u16, u32)> {
    let (word, vif) = line.split_once(' ')?;
    let word = [ONLINE, REMOVE].into_iter().find(|known| *known == word)?;
    let (domain, devid) = vif.split_once(' ')?;
    Some((word, domain.parse().ok()?, devid.parse().ok()?))
}

fn raise(root: &Path, word: &str, domain: u16, devid: u32) -> Result<()> {
    let file = format!("sys/bus/xen-backend/devices/vif-{domain}-{devid}/uevent");
    let mut file = OpenOptions::new().write(true).open(root.join(file))?;
    // The kernel takes a word in one piece only.
    let written = file.write(word.as_bytes())?;
    if written == word.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, read_to_string, write};

    #[test]
    fn only_known_events_of_vifs_that_are_named_in_full_are_raised() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let folder = root.path().join("sys/bus/xen-backend/devices").join(name);
            create_dir_all(&folder).unwrap();
            write(folder.join("uevent"), "").unwrap();
            folder.join("uevent")
        };
        let [vif, gone, other, disk] = ["vif-3-1", "vif-5-0", "vif-4-0", "vbd-3-1"].map(file);
        let lines = "online 9 9\nonline ../x\nonline 4 0 0\nonline -4 0\nonline 70000 0\n\
                     online  4 0\nonline 4\nadd 4 0\n4 0\n\nonline 3 1\nremove 5 0\n";
        serve(lines.as_bytes(), root.path()).unwrap();
        assert_eq!(read_to_string(vif).unwrap(), "online");
        assert_eq!(read_to_string(gone).unwrap(), "remove");
        for file in [other, disk] {
            assert_eq!(read_to_string(file).unwrap(), "");
        }
    }

    #[test]
    fn a_file_is_never_made() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/bus/xen-backend/devices/vif-3-1");
        create_dir_all(&folder).unwrap();
        serve("online 3 1\n".as_bytes(), root.path()).unwrap();
        assert!(!folder.join("uevent").exists());
    }
}
