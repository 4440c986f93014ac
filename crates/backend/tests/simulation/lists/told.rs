//! Counts of what happened in conversations about lists.

/// Sums over all conversations.
#[derive(Debug, Default)]
pub struct Told {
    /// Lists that were staged, and those that were refused.
    pub added: u64,
    pub refused: u64,
    /// Pages that were taken back.
    pub taken_back: u64,
    pub kills: u64,
    pub connections: u64,
    pub destroyed: u64,
    /// Frames both ways.
    pub frames: u64,
    pub hits: u64,
}

impl Told {
    pub fn add(&mut self, other: &Self) {
        self.added += other.added;
        self.refused += other.refused;
        self.taken_back += other.taken_back;
        self.kills += other.kills;
        self.connections += other.connections;
        self.destroyed += other.destroyed;
        self.frames += other.frames;
        self.hits += other.hits;
    }

    /// Each of them happened often enough, or the conversations tell little.
    pub fn holds_enough(&self, conversations: u64) {
        let Self { added, refused, taken_back, kills, connections, destroyed, frames, hits } = self;
        for (count, least) in
            [(added, 4), (refused, 2), (taken_back, 5), (connections, 1), (frames, 30), (hits, 4)]
        {
            assert!(*count >= least * conversations / 2, "{self:?}");
        }
        assert!(*kills >= conversations / 4 && *destroyed >= conversations / 20, "{self:?}");
    }
}
