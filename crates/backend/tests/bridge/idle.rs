//! Pages of guests on the bridge that stay mapped, and for how long: time stands still but for what
//! a test lets pass.

use crate::guest::{BROADCAST, Guest, frame};
use crate::support::control::Time;
use crate::support::world::World;
use std::time::Duration;

/// Time within which an idle page is unmapped, as `policy/persistent.rs` says.
const KEPT: Duration = Duration::from_secs(3 * 60);
const STEP: Duration = Duration::from_secs(5);

#[test]
fn pages_of_a_guest_that_only_receives_are_unmapped_too() {
    let mut world = World::bridged();
    world.setup.time = Time::Stands;
    world.restart();
    let keys = [("feature-persistent", "1")];
    let [mut a, mut b] = [1, 2].map(|number| Guest::boot_as(&mut world, number, &keys));
    let mapped = |world: &World| world.control().counters().mapped;
    let rests = |world: &World| {
        (0..KEPT.as_secs() / STEP.as_secs()).for_each(|_| world.passes(STEP));
        mapped(world)
    };
    let rings = mapped(&world);
    // The bridge learns where both are. The receiver has no turn of its own after this.
    b.posts(64);
    a.sends(&frame(BROADCAST, a.address, 60));
    b.gets();
    b.sends(&frame(a.address, b.address, 60));
    assert_eq!(rests(&world), rings, "pages of the first frames");
    // As a burst of private frames, and from page to page.
    for len in [60, 1514] {
        let bytes = frame(b.address, a.address, len);
        for _ in 0..8 {
            a.sends(&bytes);
            assert_eq!(b.gets(), bytes);
        }
        assert!(mapped(&world) > rings + 1, "{len} bytes: the receiver's pages are mapped");
        assert_eq!(rests(&world), rings, "{len} bytes: all idle pages are unmapped");
    }
    drop((a, b));
    world.bridge_stands();
}
