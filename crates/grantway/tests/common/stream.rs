//! TCP both ways at once.

use super::PROMPT;
use super::network::Namespace;
use super::part::Part;

/// One iperf3 that sends and one that receives, each with a server of its own.
///
/// Not one with `--bidir`: it makes both connections at once, its server tells them apart by
/// the order in which they come, and over several queues that may be another one. Then both
/// ends wait for ever (esnet/iperf, issue 2029).
pub struct Stream<'a> {
    from: &'a Namespace,
    args: [Vec<String>; 2],
    ways: [Part; 2],
}

impl<'a> Stream<'a> {
    /// To servers at an address, on these two ports.
    pub fn start(from: &'a Namespace, to: &str, ports: [u16; 2], more: &[&str]) -> Self {
        let args = [(ports[0], None), (ports[1], Some("-R"))].map(|(port, reverse)| {
            let port = port.to_string();
            let words = ["-c", to, "-p", &port].into_iter().chain(reverse);
            words.chain(more.iter().copied()).map(str::to_owned).collect::<Vec<String>>()
        });
        let ways = [client(from, &args[0]), client(from, &args[1])];
        Self { from, args, ways }
    }

    /// Starts again what has ended, as its server was still busy; whether both run.
    pub fn revive(&mut self) -> bool {
        let mut all = true;
        for (way, args) in self.ways.iter_mut().zip(&self.args) {
            if !way.is_alive() {
                *way = client(self.from, args);
                all = false;
            }
        }
        all
    }

    /// Returns true if both ends run.
    pub fn is_alive(&mut self) -> bool {
        self.ways.iter_mut().all(Part::is_alive)
    }

    /// Ends both without a warning.
    pub fn kill(&mut self) {
        self.ways.iter_mut().for_each(Part::kill);
    }

    /// Waits for the end of both, which must have gone well.
    pub fn wait_end(&mut self) {
        for way in &mut self.ways {
            let status = way.wait_end(PROMPT);
            assert!(status.success(), "iperf3: {status}: {}", way.said());
        }
    }
}

fn client(from: &Namespace, args: &[String]) -> Part {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Part::spawn("iperf3 -c", from.command_with("iperf3", &args))
}
