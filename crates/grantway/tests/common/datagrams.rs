//! Datagrams of the kernel's sockets, each of which is known again.

use super::network::Namespace;
use super::{PROMPT, succeed};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Bytes of datagrams of these lengths, each with its number.
pub fn datagrams(lengths: &[usize]) -> Vec<Vec<u8>> {
    let bytes = |(n, &length): (usize, &usize)| {
        (0..length).map(|at| (at * 31 + at / 256 + n * 7) as u8).collect()
    };
    lengths.iter().enumerate().map(bytes).collect()
}

/// A socket in a namespace, bound to an address.
pub fn socket(namespace: &Namespace, at: SocketAddr) -> UdpSocket {
    let open = || {
        namespace.enter();
        let socket = UdpSocket::bind(at).expect("a socket");
        socket.set_read_timeout(Some(PROMPT)).expect("a limit of time");
        socket
    };
    std::thread::scope(|scope| scope.spawn(open).join().expect("a thread"))
}

/// Asserts that the socket gets these datagrams, and nothing behind them.
pub fn expect(socket: &UdpSocket, sent: &[Vec<u8>], what: &str) {
    let mut room = vec![0; 65_536];
    for (n, datagram) in sent.iter().enumerate() {
        let len = socket.recv(&mut room).unwrap_or_else(|e| panic!("{what}: datagram {n}: {e}"));
        assert!(room[..len] == **datagram, "{what}: datagram {n}: {len} bytes came");
    }
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a limit of time");
    assert!(socket.recv(&mut room).is_err(), "{what}: a datagram that was not sent");
    socket.set_read_timeout(Some(PROMPT)).expect("a limit of time");
}

/// A sender with UDP_SEGMENT (103 of SOL_UDP, which is 17): the datagrams of one call.
const SENDER: &str = "
import socket, sys
host, port, size, count, last = sys.argv[1], *map(int, sys.argv[2:])
family = socket.AF_INET6 if ':' in host else socket.AF_INET
to = socket.socket(family, socket.SOCK_DGRAM)
to.connect((host, port))
to.setsockopt(17, 103, size)
lengths = [size] * (count - 1) + [last]
bytes_of = lambda n, length: bytes((at * 31 + at // 256 + n * 7) % 256 for at in range(length))
to.send(b''.join(bytes_of(n, length) for n, length in enumerate(lengths)))
";

/// Sends datagrams of these bytes to a host by one call, with segmentation: `numbers` are the port,
/// the length of each, their count, and the length of the last.
pub fn send_segmented(from: &Namespace, host: &str, numbers: [usize; 4]) {
    let mut sender = from.command("python3");
    sender.args(["-c", SENDER, host]).args(numbers.map(|n| n.to_string()));
    succeed(sender, PROMPT);
}
