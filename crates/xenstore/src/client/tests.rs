//! Tests of a client that waits for room for its transaction.

use super::*;
use crate::wire::Header;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// A store with room for a transaction after so many refusals. Returns the number of requests.
fn store(mut stream: UnixStream, refusals: usize) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut requests = 0;
        let mut head = [0; 16];
        while stream.read_exact(&mut head).is_ok() {
            let header = Header::from_bytes(&head);
            let mut body = vec![0; header.len as usize];
            stream.read_exact(&mut body).unwrap();
            requests += 1;
            let (kind, text): (_, &[u8]) = match requests > refusals {
                true => (header.kind, b"7\0"),
                false => (MessageType::Error.number(), b"ENOSPC\0"),
            };
            stream.write_all(&encode(kind, header.req_id, 0, &[text]).unwrap()).unwrap();
        }
        requests
    })
}

/// A connection whose pauses take no time.
struct Quick {
    stream: UnixStream,
    pauses: std::sync::Arc<std::sync::Mutex<Vec<Duration>>>,
}

impl Transport for Quick {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, TransportError> {
        Transport::read(&mut self.stream, bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, TransportError> {
        Transport::write(&mut self.stream, bytes)
    }

    fn wait(&mut self, ready: Ready, block: bool) -> Result<bool, TransportError> {
        self.stream.wait(ready, block)
    }

    fn pause(&mut self, time: Duration) {
        self.pauses.lock().unwrap().push(time);
    }
}

/// Returns the result of a transaction's begin at a store that refuses it so often, the number
/// of requests, and the pauses between them.
fn begin(
    refusals: usize,
    client: impl FnOnce(Quick) -> Client<Quick>,
) -> (Result<(), Error>, usize, Vec<Duration>) {
    let (stream, theirs) = UnixStream::pair().unwrap();
    let store = store(theirs, refusals);
    let pauses = std::sync::Arc::<std::sync::Mutex<Vec<Duration>>>::default();
    let begun = client(Quick { stream, pauses: pauses.clone() }).begin();
    let pauses = pauses.lock().unwrap().clone();
    (begun, store.join().unwrap(), pauses)
}

#[test]
fn a_transaction_waits_until_the_store_has_room_for_it() {
    for refusals in [0, 3, 100] {
        let (begun, requests, pauses) = begin(refusals, |quick| Client::over(quick).patient());
        assert_eq!(begun, Ok(()));
        assert_eq!((requests, pauses.len()), (refusals + 1, refusals));
        let slower = |pair: &[Duration]| pair[1] == (pair[0] * 2).min(BEGIN_WAIT_MAX);
        assert!(pauses.windows(2).all(slower), "{pauses:?}");
    }
}

#[test]
fn a_transaction_without_room_ends_with_the_refusal() {
    let (begun, requests, pauses) = begin(usize::MAX, |quick| Client::over(quick).patient());
    assert_eq!(begun, Err(refused("transaction-start", "", StoreErrno::Enospc)));
    assert_eq!(requests, pauses.len() + 1);
    let waited = pauses.iter().sum::<Duration>();
    assert!((BEGIN_WITHIN..BEGIN_WITHIN + BEGIN_WAIT_MAX).contains(&waited), "{waited:?}");
    // A client that is not patient has more to do, and tries again by itself.
    let (begun, requests, pauses) = begin(usize::MAX, Client::over);
    assert!(begun.is_err());
    assert_eq!((requests, pauses.len()), (1, 0));
}
