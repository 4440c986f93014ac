//! Packets to requests.

use super::{Multicast, SLOTS_SENT, SLOTS_WRITTEN, TxFragment};
use crate::extra::{Extra, Hash};
use crate::offload::{Checksum, NotTcp, Offload, TcpGso};
use crate::tx::{TxFlags, TxRequest};
use crate::{ETH_HEADER_BYTES, PAGE_BYTES, in_page};
use arrayvec::ArrayVec;
use thiserror::Error;

/// Reason why a packet cannot be written.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxWriteError {
    /// The number of fragments is not within 1 to [`SLOTS_SENT`].
    #[error("packet of {found} fragments, expected 1 to {SLOTS_SENT}")]
    FragmentCount {
        /// Fragments given.
        found: usize,
    },
    /// The sum of the fragments is not the length of the packet.
    #[error("packet of {len} bytes whose fragments have {sum}, expected the same sum")]
    LengthMismatch {
        /// Bytes of the packet, as given.
        len: u16,
        /// Bytes of its fragments.
        sum: u32,
    },
    /// A fragment does not end in the page in which it begins.
    #[error(
        "fragment {fragment}: bytes {offset} to {offset} + {size}, expected an end at or below {PAGE_BYTES}"
    )]
    CrossesPage {
        /// Number of the fragment.
        fragment: usize,
        /// Offset of the first byte in the page.
        offset: u16,
        /// Bytes of the fragment.
        size: u16,
    },
    /// A fragment has no bytes. The protocol allows it, but a netback without the fix of XSA-448
    /// crashes on it.
    #[error("fragment {fragment} is empty, expected at least 1 byte")]
    EmptyFragment {
        /// Number of the fragment.
        fragment: usize,
    },
    /// The first fragment is shorter than an Ethernet header. Stock netback refuses such a packet.
    #[error("first fragment of {found} bytes, expected at least {ETH_HEADER_BYTES}")]
    ShortFirstFragment {
        /// Bytes of the first fragment.
        found: u16,
    },
    /// The segment size is 0. Stock netback disables the vif for it.
    #[error("segment size 0, expected at least 1")]
    ZeroGsoSize,
    /// netif cannot express the segmentation.
    #[error(transparent)]
    NotTcp(#[from] NotTcp),
    /// A change of the multicast filter must have one empty fragment.
    #[error("multicast change with {fragments} fragments and {len} bytes, expected 1 and 0")]
    MulticastWithData {
        /// Fragments given.
        fragments: usize,
        /// Bytes of the packet, as given.
        len: u16,
    },
    /// The list has no room for the packet's slots.
    #[error("packet of {needed} slots, expected at most {room}: the free slots of the list")]
    NoRoom {
        /// Slots of the packet.
        needed: usize,
        /// Free slots of the list.
        room: usize,
    },
}

/// Appends the requests of one packet to `out`, in the order of the ring. It is the inverse of
/// [`parse_tx`](super::parse_tx).
///
/// `len` is the length of the packet in bytes. With segmentation, [`Checksum::Partial`] is written,
/// whatever `offload` has. A change of the multicast filter has one empty fragment, whose grant
/// reference is ignored, and `len` 0.
///
/// # Errors
///
/// Returns [`TxWriteError`] for a packet that stock netback would drop or disable the vif for, and
/// if `out` has too few free slots. `out` is unchanged then.
pub fn write_tx(
    fragments: &[TxFragment],
    len: u16,
    offload: Offload,
    hash: Option<Hash>,
    multicast: Option<Multicast>,
    out: &mut ArrayVec<[u32; 3], SLOTS_WRITTEN>,
) -> Result<(), TxWriteError> {
    check_fragments(fragments, len, multicast.is_some())?;
    if offload.gso.is_some_and(|gso| gso.size == 0) {
        return Err(TxWriteError::ZeroGsoSize);
    }
    let mut extras: ArrayVec<Extra, 3> = ArrayVec::new();
    let multicast = multicast.map(|change| match change {
        Multicast::Add(address) => Extra::McastAdd(address),
        Multicast::Remove(address) => Extra::McastDel(address),
    });
    let gso = offload.gso.map(TcpGso::try_from).transpose()?.map(|gso| Extra::Gso(gso, 0));
    extras.extend([gso, multicast, hash.map(Extra::Hash)].into_iter().flatten());
    let needed = fragments.len() + extras.len();
    if needed > out.remaining_capacity() {
        return Err(TxWriteError::NoRoom { needed, room: out.remaining_capacity() });
    }

    let segmented = offload.gso.is_some();
    let mut described = described(if segmented { Checksum::Partial } else { offload.checksum });
    described.set(TxFlags::EXTRA_INFO, !extras.is_empty());
    for (index, fragment) in fragments.iter().enumerate() {
        let mut request = TxRequest {
            gref: fragment.gref,
            offset: fragment.offset,
            flags: TxFlags::empty(),
            id: fragment.id,
            size: fragment.size,
        };
        if index == 0 {
            request.flags = described;
            request.size = len;
        }
        request.flags.set(TxFlags::MORE_DATA, index + 1 < fragments.len());
        out.push(request.to_words());
        if index == 0 {
            for (index, extra) in extras.iter().enumerate() {
                out.push(extra.to_tx_words(index + 1 < extras.len()));
            }
        }
    }
    Ok(())
}

/// Returns the request of a packet in one piece without extras, as [`write_tx`] writes it. To save
/// time in a burst, it validates nothing: the caller ensures that the piece has at least 14 bytes,
/// and ends in its page.
#[inline]
#[must_use]
pub fn write_one(fragment: TxFragment, checksum: Checksum) -> [u32; 3] {
    let TxFragment { gref, offset, size, id } = fragment;
    TxRequest { gref, offset, flags: described(checksum), id, size }.to_words()
}

/// Changes the size and the checksum of a request, for a buffer that is used again. `words` must
/// come from [`write_one`] for this buffer, with 0 bytes and an unknown checksum. Returns the
/// request for `size` bytes at the same place.
#[inline]
#[must_use]
pub fn write_again(words: [u32; 3], size: u16, checksum: Checksum) -> [u32; 3] {
    let [gref, second, third] = words;
    let flags = u32::from(described(checksum).bits());
    [gref, second | flags << 16, third | u32::from(size) << 16]
}

#[inline]
fn described(checksum: Checksum) -> TxFlags {
    match checksum {
        Checksum::Partial => TxFlags::CSUM_BLANK | TxFlags::DATA_VALIDATED,
        Checksum::Complete => TxFlags::DATA_VALIDATED,
        Checksum::Unknown => TxFlags::empty(),
    }
}

fn check_fragments(
    fragments: &[TxFragment],
    len: u16,
    multicast: bool,
) -> Result<(), TxWriteError> {
    if multicast {
        return match fragments {
            [one] if one.is_empty() && len == 0 => Ok(()),
            _ => Err(TxWriteError::MulticastWithData { fragments: fragments.len(), len }),
        };
    }
    let first = match fragments {
        [first, ..] if fragments.len() <= SLOTS_SENT => first,
        _ => {
            return Err(TxWriteError::FragmentCount { found: fragments.len() });
        }
    };
    let mut sum = 0u32;
    for (fragment, piece) in fragments.iter().enumerate() {
        if piece.is_empty() {
            return Err(TxWriteError::EmptyFragment { fragment });
        }
        if !in_page(piece.offset, piece.size) {
            return Err(TxWriteError::CrossesPage {
                fragment,
                offset: piece.offset,
                size: piece.size,
            });
        }
        sum += u32::from(piece.size);
    }
    if sum != u32::from(len) {
        return Err(TxWriteError::LengthMismatch { len, sum });
    }
    if first.size < ETH_HEADER_BYTES {
        return Err(TxWriteError::ShortFirstFragment { found: first.size });
    }
    Ok(())
}
