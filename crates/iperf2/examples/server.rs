//! Counts the datagrams of UDP tests of iperf 2, and answers each test with a report.
//!
//!     cargo run -p grantway-iperf2 --example server &
//!     iperf -c 127.0.0.1 -u -b 10M -t 2

use grantway_iperf2::{Datagram, PORT, Report, Tally};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Instant, SystemTime};

/// The test of one client, until the next client begins.
struct Test {
    client: SocketAddr,
    tally: Tally,
    /// The answer, once the last datagram came. The client repeats that datagram if the answer is
    /// lost.
    answer: Option<Report>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = UdpSocket::bind(("127.0.0.1", PORT))?;
    println!("listening on UDP port {PORT}");
    let started = Instant::now();
    let mut bytes = [0; 65_535];
    let mut test: Option<Test> = None;
    loop {
        let (len, client) = socket.recv_from(&mut bytes)?;
        let Some(datagram) = Datagram::parse(&bytes[..len]) else { continue };
        let (now, wall) = (started.elapsed(), SystemTime::UNIX_EPOCH.elapsed()?);

        let test = match &mut test {
            Some(test) if test.client == client => test,
            other => other.insert(Test { client, tally: Tally::new(now), answer: None }),
        };
        if test.answer.is_none() {
            test.tally.take(datagram, len, now, wall);
            // The number of the last datagram is negative.
            if datagram.id < 0 {
                let report = test.tally.report();
                let Report { bytes, lost, datagrams, length, .. } = report;
                println!("{client}: {bytes} bytes in {length:?}, {lost} of {datagrams} lost");
                test.answer = Some(report);
            }
        }
        if let Some(report) = &test.answer {
            socket.send_to(&report.bytes(), client)?;
        }
    }
}
