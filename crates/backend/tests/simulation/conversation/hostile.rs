//! The part of hostile guests in a conversation.

use super::super::enemy::{Act, Enemy};
use super::Conversation;

impl Conversation {
    /// Hostile guests come, too.
    pub(super) fn suffer(&mut self, count: usize) {
        for number in 0..count {
            let id = self.fresh_vif();
            self.lines.name(self.guests.len() + number, id);
            self.toolstack.attach(id, &[]);
            self.enemies.push(Enemy::new(id, number));
        }
        self.told.hostile = u64::from(count > 0);
    }

    /// Lets one of the hostile guests do something.
    pub(super) fn hurt(&mut self, tick: u32) {
        let count = self.enemies.len();
        let one = self.numbers.below(count);
        let two = (one + 1 + self.numbers.below(count - 1)) % count;
        let Ok([enemy, other]) = self.enemies.get_disjoint_mut([one, two]) else { return };
        let act = enemy.acts(&self.xen, other, self.guests.len(), &mut self.numbers);
        self.told.betrayals += u64::from(act == Act::Betrays);
        if act != Act::Nothing {
            self.tell(format_args!("{tick}: enemy {one} beside {two}: {act:?}"));
        }
    }

    /// Their domains die, and nothing of them is left.
    pub(super) fn enemies_go(&mut self) {
        for enemy in std::mem::take(&mut self.enemies) {
            let id = enemy.id;
            self.xen.destroy(id.domain);
            self.toolstack.ask_to_close(id);
            self.settle();
            self.toolstack.remove_both(id);
            self.settle();
        }
    }
}
