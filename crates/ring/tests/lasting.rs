//! Pages of a file on a full file system, behind a link, and of another user.

use grantway_needs::{Need, met};
use grantway_ring::{PAGE_SIZE, SharedRun};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::process::Command;

/// Set for the half of a test that runs in a mount namespace of its own.
const INSIDE: &str = "GRANTWAY_LASTING_INSIDE";

#[test]
fn what_was_written_lasts_and_the_file_has_no_holes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pages");
    let run = SharedRun::lasting(&path, 3).unwrap();
    run.page(2).unwrap().write(5, b"lasts").unwrap();
    drop(run);
    let longer = SharedRun::lasting(&path, 4).unwrap();
    let mut read = [0; 5];
    longer.page(2).unwrap().read(5, &mut read).unwrap();
    assert_eq!(&read, b"lasts");
    let file = std::fs::metadata(&path).unwrap();
    assert_eq!((file.len(), file.mode() & 0o777), (4 * PAGE_SIZE as u64, 0o600));
    assert!(file.blocks() * 512 >= file.len(), "{} blocks: it has holes", file.blocks());
}

#[test]
fn a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("pages"), folder.path().join("other"));
    std::fs::write(&other, b"not ours").unwrap();
    symlink(&other, &path).unwrap();
    assert!(SharedRun::lasting(&path, 1).is_err());
    assert_eq!(std::fs::read(&other).unwrap(), b"not ours");
}

#[test]
fn a_file_of_another_user_is_refused_by_name() {
    if !met(&[Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pages");
    std::fs::write(&path, b"").unwrap();
    chown(&path, Some(65_534), Some(65_534)).unwrap();
    let refused = SharedRun::lasting(&path, 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("belongs to user 65534"), "{refused}");
}

#[test]
fn a_full_file_system_is_an_error_and_no_signal() {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return fill(Path::new(&folder));
    }
    if !met(&[Need::Root, Need::Program("unshare", "util-linux")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mount, program) = (folder.path(), std::env::current_exe().unwrap());
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" && exec \"$0\" --exact \
                  a_full_file_system_is_an_error_and_no_signal";
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .args([program.as_os_str(), mount.as_os_str()])
        .env(INSIDE, mount)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// On 16 pages: two runs of 7 fit, a third does not.
fn fill(folder: &Path) {
    for name in ["a", "b"] {
        let run = SharedRun::lasting(&folder.join(name), 7).unwrap();
        for page in 0..7 {
            run.page(page).unwrap().write(0, &[1; PAGE_SIZE]).unwrap();
        }
    }
    let refused = SharedRun::lasting(&folder.join("c"), 7).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
}
