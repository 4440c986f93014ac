//! Signals that were seen, by port.

use grantway_hypervisor::Port;

/// The ports of a set, with the number of signals seen at each.
#[derive(Debug, Default)]
pub struct Counts {
    /// Counts by number of the port; `None` for a port that is not ours.
    ports: Vec<Option<u64>>,
    open: usize,
}

impl Counts {
    /// Makes a port ours from now on.
    pub fn open(&mut self, port: Port) {
        let index = port.0 as usize;
        if self.ports.len() <= index {
            self.ports.resize(index + 1, None);
        }
        self.open += usize::from(self.ports[index].replace(0).is_none());
    }

    /// Removes a port. Returns true if it was ours.
    pub fn close(&mut self, port: Port) -> bool {
        let was = self.ports.get_mut(port.0 as usize).and_then(Option::take).is_some();
        self.open -= usize::from(was);
        was
    }

    /// Returns the number of ports that are ours.
    pub fn len(&self) -> usize {
        self.open
    }

    /// Returns the number of signals seen at a port; 0 for a port that is not ours.
    pub fn seen(&self, port: Port) -> u64 {
        self.ports.get(port.0 as usize).copied().flatten().unwrap_or(0)
    }

    /// Counts ports that fired, 4 bytes each, and calls `tell` for each.
    pub fn take(&mut self, fired: &[u8], tell: &mut dyn FnMut(Port)) {
        for word in fired.as_chunks().0 {
            let port = Port(u32::from_ne_bytes(*word));
            // A port that was closed in between may still be in the buffer.
            if let Some(Some(count)) = self.ports.get_mut(port.0 as usize) {
                *count += 1;
                tell(port);
            }
        }
    }

    /// Counts a signal at every port, since it is not known which fired. Returns all ports, 4 bytes
    /// each.
    pub fn take_all(&mut self, tell: &mut dyn FnMut(Port)) -> Vec<u8> {
        let mut all = Vec::with_capacity(4 * self.open);
        for (port, count) in (0_u32..).zip(&mut self.ports) {
            if let Some(count) = count {
                *count += 1;
                all.extend(port.to_ne_bytes());
                tell(Port(port));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(ports: &[u32]) -> Vec<u8> {
        ports.iter().flat_map(|port| port.to_ne_bytes()).collect()
    }

    #[test]
    fn a_port_counts_while_it_is_ours() {
        let mut counts = Counts::default();
        let mut told = Vec::new();
        counts.open(Port(3));
        counts.open(Port(9));
        counts.take(&words(&[9, 3, 9, 4, u32::MAX]), &mut |port| told.push(port.0));
        assert_eq!(told, [9, 3, 9]);
        assert_eq!([3, 9, 4, u32::MAX].map(|port| counts.seen(Port(port))), [1, 2, 0, 0]);
        assert!(counts.close(Port(9)) && !counts.close(Port(9)) && !counts.close(Port(77)));
        counts.take(&words(&[9]), &mut |_| panic!("not ours any more"));
        counts.open(Port(9));
        assert_eq!((counts.seen(Port(9)), counts.len()), (0, 2));
    }

    #[test]
    fn when_the_buffer_ran_over_every_port_was_signalled() {
        let mut counts = Counts::default();
        for port in [2, 5, 1030] {
            counts.open(Port(port));
        }
        counts.close(Port(5));
        counts.take(&words(&[2]), &mut |_| {});
        let mut told = Vec::new();
        assert_eq!(counts.take_all(&mut |port| told.push(port.0)), words(&[2, 1030]));
        assert_eq!(told, [2, 1030]);
        assert_eq!((counts.seen(Port(2)), counts.seen(Port(1030))), (2, 1));
    }
}
