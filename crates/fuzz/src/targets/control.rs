//! The slots of the control ring, and the bounds of what they ask for.

use super::Bytes;
use grantway_netif::ctrl::{
    CtrlRequest, CtrlResponse, GREF_LIST_ENTRIES, GrefEntry, HASH_MAPPING_ENTRIES, Message, Status,
    gref_list_entries, kind, mapping_range,
};

pub(super) fn run(data: &[u8]) {
    for chunk in data.chunks(16) {
        let mut bytes = Bytes(chunk);
        slot([bytes.u32(), bytes.u32(), bytes.u32(), bytes.u32()]);
    }
}

fn slot(words: [u32; 4]) {
    let request = CtrlRequest::from_words(words);
    assert_eq!(request.to_words(), words);
    let known = (kind::GET_HASH_FLAGS..=kind::DEL_GREF_MAPPING).contains(&request.kind);
    match request.message() {
        Ok(message) => {
            assert!(known);
            let again = message.request(request.id);
            assert_eq!((again.id, again.kind), (request.id, request.kind));
            assert_eq!(again.message(), Ok(message));
            // Words that a message uses are kept, the others are zero.
            for (ours, theirs) in again.data.iter().zip(request.data) {
                assert!(*ours == theirs || *ours == 0);
            }
            bounds(message);
        }
        Err(unknown) => assert!(!known && unknown.found == request.kind),
    }
    let statuses =
        [Status::Success, Status::NotSupported, Status::InvalidParameter, Status::BufferOverflow];
    for status in statuses {
        let answer = request.answer(status, words[3]);
        let slot = answer.to_words();
        assert_eq!(slot, [words[0], status.to_u32(), words[3], 0]);
        assert_eq!(CtrlResponse::from_words(slot), answer);
        assert_eq!(answer.status(), Some(status));
        assert_eq!(u32::from(status.to_u16()), status.to_u32());
    }
    let response = CtrlResponse::from_words(words);
    assert_eq!(response.to_words(), [words[0], words[1], words[2], 0]);
    assert_eq!(response.status().map(Status::to_u32), (words[1] < 4).then_some(words[1]));
    let entry = [words[0], words[1]];
    assert_eq!(GrefEntry::from_words(entry).to_words(), entry);
}

/// XSA-270: sums that no 32 bits hold. The grant stands for the other bound:
/// entries of the table, or queues.
fn bounds(message: Message) {
    match message {
        Message::SetHashMapping { gref: table, entries, offset } => {
            let end = u128::from(entries) + u128::from(offset);
            let inside = entries > 0 && end <= u128::from(table);
            match mapping_range(entries, offset, table) {
                Ok(range) => {
                    assert!(inside && range.len() <= HASH_MAPPING_ENTRIES);
                    assert!(range.start == offset as usize && range.len() == entries as usize);
                }
                Err(Status::BufferOverflow) => {
                    assert!(inside && entries as usize > HASH_MAPPING_ENTRIES);
                }
                Err(status) => assert!(!inside && status == Status::InvalidParameter),
            }
        }
        Message::AddGrefMapping { queue, list: queues, entries }
        | Message::DelGrefMapping { queue, list: queues, entries } => {
            let taken = gref_list_entries(queue, queues, entries);
            let right = queue < queues && entries > 0 && entries as usize <= GREF_LIST_ENTRIES;
            assert_eq!(taken, right.then_some(entries as usize).ok_or(Status::InvalidParameter));
        }
        _ => {}
    }
}
