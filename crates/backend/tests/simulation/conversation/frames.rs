//! Conditions that the frames of a conversation must meet.

use super::super::guest::FLOWS;
use super::Conversation;
use grantway_ports::Checker;

impl Conversation {
    /// Frames from a guest, and those to it, that arrived.
    pub(super) fn counts(&self, number: usize) -> (u64, u64) {
        (self.arrived(number), self.guests[number].seen.total().received)
    }

    /// Checks that no frame came twice or damaged, whatever happened, and that all frames came
    /// if nothing happened.
    pub(super) fn look_at_frames(&mut self) {
        let backend_died = self.server.killed > 0;
        let ordered = self.queues == 1;
        for number in 0..self.guests.len() {
            let guest = &self.guests[number];
            let peaceful = !guest.disturbed && !backend_died && !self.trouble.long;
            let from = if self.bridged {
                (number + self.guests.len() - 1) % self.guests.len()
            } else {
                number
            };
            let from_peaceful = peaceful && !self.guests[from].disturbed;
            let mut found = vec![("to", judge(&guest.seen, ordered, from_peaceful))];
            let mut given =
                (from_peaceful && !self.bridged).then(|| self.lines.look(number).to_guest.made());
            if from_peaceful && self.bridged {
                given = Some(self.guests[from].sent);
            }
            let got = guest.seen.total().received;
            if given.is_some_and(|given| given != got) {
                found.push(("to", Some(format!("{given:?} sent and {got} received"))));
            }
            if !self.bridged {
                let verdict = judge(&self.lines.look(number).from_guest, true, peaceful);
                found.push(("from", verdict));
                let arrived = self.arrived(number);
                if peaceful && arrived != guest.sent {
                    let told = format!("{} sent and {arrived} arrived", guest.sent);
                    found.push(("from", Some(told)));
                }
            }
            self.told.undisturbed += u64::from(peaceful);
            if !guest.disturbed && guest.connections != 1 {
                let (connections, stand) = (guest.connections, self.stand());
                panic!("guest {number} was connected {connections} times\n{stand}");
            }
            for (way, wrong) in found {
                if let Some(wrong) = wrong {
                    panic!("frames {way} guest {number}: {wrong}\n{}", self.stand());
                }
            }
        }
    }
}

/// Returns what is wrong with the frames that arrived, if anything. `ordered`: they must have
/// kept their order. `complete`: none may be lost.
fn judge(checker: &Checker, ordered: bool, complete: bool) -> Option<String> {
    let total = checker.total();
    let damaged = checker.corrupt() + checker.foreign();
    let wrong = total.duplicated + total.stale + damaged > 0
        || ordered && total.reordered > 0
        || complete && total.lost > 0;
    let flows: Vec<_> = (0..FLOWS).map(|flow| checker.flow_report(flow as u16)).collect();
    wrong.then(|| format!("{total:?}, {damaged} damaged; flows {flows:?}"))
}
