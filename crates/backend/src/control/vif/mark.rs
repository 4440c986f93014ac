//! The mark by which an operator says how a vif's checksums are to be.

use super::Vif;
use crate::VifError;
use crate::control::published::shown;
use crate::control::surroundings::Surroundings;
use crate::error::is_of_nodes;
use crate::ids::VifId;
use crate::state::checksums::Checksums;
use grantway_hypervisor::{Error as PlatformError, Store};
use grantway_netif::keys;

/// Characters of a UUID.
const UUID: usize = 36;

/// Legal values of a mark, and the remedy for any other value.
const EXPECTED: &str = "full or offload: write one of them, or remove the node, and connect the \
     guest again; until then the backend's --checksum holds";

impl Vif {
    /// Reads the vif's mark. An illegal value is reported, and counts as no mark.
    ///
    /// # Errors
    ///
    /// The store has trouble of its own. The last mark stays in force.
    pub(super) fn look_at_checksums(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlatformError> {
        let marked = match mark(around.store, &self.path, self.id) {
            Ok(marked) => marked,
            Err(VifError::Platform(trouble)) => return Err(trouble),
            Err(error) => {
                self.report(&error, around);
                None
            }
        };
        self.checksums = marked.unwrap_or(around.engine.settings.checksums);
        Ok(())
    }
}

/// Returns the mark of a vif, if it has one: of its backend folder, or else of XAPI's settings for
/// the vif (`other-config:checksum`).
fn mark(store: &mut dyn Store, path: &str, id: VifId) -> Result<Option<Checksums>, VifError> {
    let own = format!("{path}/{}", keys::CHECKSUM);
    if let Some(mark) = mark_in(store, own)? {
        return Ok(Some(mark));
    }
    let Some(uuid) = uuid(store, id)? else { return Ok(None) };
    let devid = id.devid;
    mark_in(store, format!("/xapi/{uuid}/private/vif/{devid}/other-config/{}", keys::CHECKSUM))
}

fn mark_in(store: &mut dyn Store, path: String) -> Result<Option<Checksums>, VifError> {
    let Some(text) = readable(store, &path)? else { return Ok(None) };
    match text.parse() {
        Ok(mark) => Ok(Some(mark)),
        Err(()) => Err(VifError::Key { path, found: shown(&text), expected: EXPECTED }),
    }
}

/// Returns the UUID of the guest's virtual machine, if the toolstack wrote one.
fn uuid(store: &mut dyn Store, id: VifId) -> Result<Option<String>, PlatformError> {
    let vm = readable(store, &format!("/local/domain/{}/vm", id.domain))?;
    let uuid = vm.as_deref().and_then(|vm| vm.strip_prefix("/vm/")).filter(|uuid| {
        uuid.len() == UUID && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    });
    Ok(uuid.map(str::to_owned))
}

/// Returns a node's value. A node that may not be read counts as missing, as a driver domain may
/// read little outside of its own folder.
fn readable(store: &mut dyn Store, path: &str) -> Result<Option<String>, PlatformError> {
    match store.read_text(path) {
        Err(PlatformError::Store { errno, .. }) if is_of_nodes(errno) => Ok(None),
        other => other,
    }
}
