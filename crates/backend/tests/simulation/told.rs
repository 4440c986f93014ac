//! Counts of what happened in conversations.

/// Sums over all conversations.
#[derive(Debug, Default)]
pub struct Told {
    pub frames: u64,
    pub guest_kills: u64,
    pub backend_kills: u64,
    pub backend_ends: u64,
    pub detaches: u64,
    pub forced: u64,
    pub closes: u64,
    pub destroys: u64,
    pub undisturbed: u64,
    /// Conversations with hostile guests, and what those did together.
    pub hostile: u64,
    pub betrayals: u64,
    /// Pages staged at the end, and pieces that went by the processor.
    pub staged: u64,
    pub hits: u64,
    /// Pieces that a port read where they were.
    pub in_place: u64,
    /// Frames sent while a queue used further pages to send from.
    pub bulk: u64,
}

impl Told {
    pub fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        self.guest_kills += other.guest_kills;
        self.backend_kills += other.backend_kills;
        self.backend_ends += other.backend_ends;
        self.detaches += other.detaches;
        self.forced += other.forced;
        self.closes += other.closes;
        self.destroys += other.destroys;
        self.undisturbed += other.undisturbed;
        self.hostile += other.hostile;
        self.betrayals += other.betrayals;
        self.staged += other.staged;
        self.hits += other.hits;
        self.in_place += other.in_place;
        self.bulk += other.bulk;
    }

    /// Each of them happened once in a hundred conversations, or they tell little.
    pub fn holds_enough(&self, conversations: u64) {
        let least = conversations / 100;
        let Self { frames, guest_kills, backend_kills, backend_ends, detaches, .. } = self;
        let Self { forced, closes, destroys, undisturbed, staged, hits, in_place, .. } = self;
        assert!(self.hostile >= 25 * least && self.betrayals >= 10 * least, "{self:?}");
        assert!(self.bulk >= 10 * least, "{self:?}");
        for count in [guest_kills, backend_kills, backend_ends, detaches, forced, closes, destroys]
        {
            assert!(*count >= least, "{self:?}");
        }
        assert!(*undisturbed >= least && *frames >= 1000 * least, "{self:?}");
        for count in [staged, hits, in_place] {
            assert!(*count >= 100 * least, "{self:?}");
        }
    }
}
