//! The control ring: XSA-376 on answers, answers out of order, and a change of
//! the hash that is refused at any step.

use crate::support::server::{Rings, Server};
use crate::support::world::World;
use grantway_frontend::{Answer, HashRefusal, HashState, HashWish, SubmitError, Ticket};
use grantway_hypervisor::{Access, GrantRef, Mapper, Port};
use grantway_netif::XenbusState;
use grantway_netif::ctrl::{CtrlRequest, CtrlResponse, HashTypes, Message, Status, kind};
use grantway_ring::{Back, Index, RingMemory, RingPage};

/// The backend's end of a control ring, by hand.
pub struct Served {
    pub back: Back<RingPage<4>, 4>,
    event: Port,
}

impl Served {
    pub fn attach(server: &mut Server) -> Self {
        let mut number =
            |key: &str| -> u32 { server.front_key(key).expect(key).parse().expect(key) };
        let (ring, event) = (number("ctrl-ring-ref"), number("event-channel-ctrl"));
        let page = server.map(GrantRef(ring)).unwrap().page(0).unwrap();
        let event = server.events.bind_interdomain(server.guest, Port(event)).unwrap();
        Self { back: Back::new(RingPage::new(page)), event }
    }

    pub fn requests(&mut self) -> Vec<CtrlRequest> {
        let mut requests = Vec::new();
        while let Some((_, words)) = self.back.pop().unwrap() {
            requests.push(CtrlRequest::from_words(words));
        }
        requests
    }

    pub fn answer(&mut self, server: &mut Server, answers: &[CtrlResponse]) {
        for answer in answers {
            self.back.push_response(answer.to_words()).unwrap();
        }
        assert!(self.back.publish(), "nobody asked to be signalled");
        server.kick(self.event);
    }

    pub fn close(self, server: &mut Server) {
        server.events.close(self.event);
    }
}

/// Returns a connected vif with a control ring.
fn connected() -> (World, Rings, Served) {
    let mut world = World::new();
    world.server.key("feature-ctrl-ring", b"1");
    world.published();
    let served = Served::attach(&mut world.server);
    let rings = world.connect_as_offered();
    (world, rings, served)
}

fn submit(world: &mut World, message: Message) -> Result<Ticket, SubmitError> {
    world.vif.control_mut().unwrap().submit(message).unwrap()
}

fn next(world: &mut World) -> Option<Answer> {
    world.vif.take_answers().unwrap();
    world.vif.control_mut()?.next_answer()
}

const WISH: Message = Message::GetGrefMappingSize { queue: 0 };

#[test]
fn ctrl_answers_come_in_any_order() {
    let (mut world, rings, mut served) = connected();
    let mut tickets: Vec<_> = (0..128)
        .map(|queue| submit(&mut world, Message::GetGrefMappingSize { queue }).unwrap())
        .collect();
    assert_eq!(submit(&mut world, WISH), Err(SubmitError::Full));
    let mut answers: Vec<_> = served
        .requests()
        .iter()
        .map(|request| request.answer(Status::Success, request.data[0] + 1000))
        .collect();
    answers.reverse();
    tickets.reverse();
    served.answer(&mut world.server, &answers);
    for (n, ticket) in (0..).zip(&tickets) {
        let queue = 127 - n;
        let message = Message::GetGrefMappingSize { queue };
        let expected = Answer { ticket: *ticket, message, result: Ok(queue + 1000) };
        if n == 0 {
            world.vif.take_answers().unwrap();
            // A place that is answered and not looked at is still taken.
            assert_eq!(submit(&mut world, WISH), Err(SubmitError::Full));
        }
        assert_eq!(next(&mut world), Some(expected));
    }
    assert_eq!(next(&mut world), None);
    let ticket = submit(&mut world, WISH).unwrap();
    assert!(!tickets.contains(&ticket) && world.vif.control().unwrap().is_out(ticket));
    let refused = served.requests()[0].answer(Status::NotSupported, 77);
    served.answer(&mut world.server, &[refused]);
    assert_eq!(next(&mut world).unwrap().result, Err(Status::NotSupported));
    served.close(&mut world.server);
    world.ends(rings);
}

/// Answers three requests, the second of which is spoilt.
fn spoilt(spoil: impl Fn(&mut CtrlResponse, &[CtrlRequest]), why: &str) {
    let (mut world, rings, mut served) = connected();
    let del = Message::DelGrefMapping { queue: 0, list: 9, entries: 4 };
    for message in [WISH, del, WISH] {
        submit(&mut world, message).unwrap();
    }
    let requests = served.requests();
    let mut answers: Vec<_> = requests.iter().map(|r| r.answer(Status::Success, 4)).collect();
    spoil(&mut answers[1], &requests);
    served.answer(&mut world.server, &answers);
    world.vif.take_answers().unwrap();
    served.close(&mut world.server);
    world.closed_for(rings, why);
}

#[test]
fn xsa_376_control_answers_that_are_to_no_request() {
    let unknown = "which is not outstanding";
    spoilt(|answer, requests| answer.id = requests[0].id, unknown);
    spoilt(|answer, _| answer.id = answer.id.wrapping_add(128), unknown);
    spoilt(|answer, _| answer.id ^= 0x7f, unknown);
    spoilt(|answer, _| answer.kind = kind::ADD_GREF_MAPPING, "is of type 9, expected 10");
    spoilt(|answer, _| answer.status = 4, "has status 4");
    spoilt(|answer, _| answer.status = 0x1_0000, "has status 65536");
    spoilt(|answer, _| answer.data = 5, "5 grants of a list of 4");
}

#[test]
fn xsa_376_an_absurd_index_of_control_answers() {
    for index in [2, 129, u32::MAX] {
        let (mut world, rings, served) = connected();
        submit(&mut world, WISH).unwrap();
        served.back.memory().store(Index::RspProd, index);
        world.vif.take_answers().unwrap();
        served.close(&mut world.server);
        world.closed_for(rings, "control ring");
    }
}

fn wish(mapping: &[u16]) -> HashWish {
    HashWish { types: HashTypes::all(), key: [7; 40], mapping: mapping.to_vec() }
}

/// Serves requests of a change one by one; `judge` gives the answer to each. Returns the types of
/// the requests.
pub fn serve(
    world: &mut World,
    served: &mut Served,
    mut judge: impl FnMut(CtrlRequest) -> (Status, u32),
) -> Vec<u16> {
    let mut asked = Vec::new();
    loop {
        let requests = served.requests();
        assert!(requests.len() <= 1, "one at a time: {requests:?}");
        let Some(&request) = requests.first() else { return asked };
        asked.push(request.kind);
        let (status, data) = judge(request);
        served.answer(&mut world.server, &[request.answer(status, data)]);
        world.vif.take_answers().unwrap();
    }
}

/// Returns the answer of a backend that can do all.
fn willing(request: CtrlRequest) -> (Status, u32) {
    match request.kind {
        kind::GET_HASH_FLAGS => (Status::Success, 15),
        kind::GET_HASH_MAPPING_SIZE => (Status::Success, 128),
        _ => (Status::Success, 0),
    }
}

#[test]
fn ctrl_the_hash_is_set_step_by_step_and_again_on_the_next_connection() {
    let (mut world, mut rings, mut served) = connected();
    let mapping: Vec<u16> = vec![0; 9];
    assert_eq!(world.vif.hash(), (None, HashState::Unset));
    world.vif.set_hash(Some(wish(&mapping))).unwrap();
    assert_eq!(world.vif.hash().1, HashState::Setting);
    for connection in 0..2 {
        let guest = world.server.guest;
        let domain = std::sync::Arc::clone(&world.server.domain);
        let asked = serve(&mut world, &mut served, |request| {
            let [first, second, third] = request.data;
            match request.kind {
                kind::SET_HASH_KEY => {
                    let run = domain.map(guest, &[GrantRef(first)], Access::ReadOnly).unwrap();
                    let mut key = [0; 41];
                    run.page(0).unwrap().read(0, &mut key).unwrap();
                    assert_eq!((second, &key[..40], key[40]), (40, &[7; 40][..], 0));
                }
                kind::SET_HASH_MAPPING => assert_eq!((second, third), (9, 0)),
                kind::SET_HASH_MAPPING_SIZE => assert_eq!(first, 9),
                kind::SET_HASH_FLAGS => assert_eq!(first, 15),
                _ => {}
            }
            willing(request)
        });
        // The types come last.
        assert_eq!(asked, [7, 1, 3, 4, 5, 6, 2], "connection {connection}");
        assert_eq!(world.vif.hash().1, HashState::Set);
        if connection == 0 {
            // The backend goes round.
            served.close(&mut world.server);
            world.server.detach(rings);
            world.server.state(XenbusState::Closing);
            world.until_shown(XenbusState::Closed);
            world.server.state(XenbusState::Closed);
            world.until_shown(XenbusState::Initialising);
            assert_eq!(world.vif.hash().1, HashState::Waiting);
            world.server.offer();
            world.until_shown(XenbusState::Connected);
            served = Served::attach(&mut world.server);
            rings = world.connect_as_offered();
        }
    }
    world.vif.set_hash(None).unwrap();
    assert_eq!(serve(&mut world, &mut served, willing), [7]);
    assert_eq!(world.vif.hash(), (None, HashState::Unset));
    served.close(&mut world.server);
    world.ends(rings);
}

#[test]
fn ctrl_a_change_that_is_refused_switches_hashing_off() {
    let (mut world, rings, mut served) = connected();
    let steps = [
        (kind::SET_HASH_ALGORITHM, "hash by Toeplitz"),
        (kind::GET_HASH_FLAGS, "tell what it can hash"),
        (kind::SET_HASH_KEY, "take the key"),
        (kind::GET_HASH_MAPPING_SIZE, "tell how long a table it takes"),
        (kind::SET_HASH_MAPPING_SIZE, "make the table"),
        (kind::SET_HASH_MAPPING, "fill the table"),
        (kind::SET_HASH_FLAGS, "take the types"),
    ];
    for (at, (step, what)) in steps.into_iter().enumerate() {
        world.vif.set_hash(Some(wish(&[0]))).unwrap();
        let mut refused = false;
        let asked = serve(&mut world, &mut served, |request| {
            if request.kind == step && !refused {
                refused = true;
                return (Status::NotSupported, 0);
            }
            willing(request)
        });
        assert_eq!((asked.len(), asked.last()), (at + 2, Some(&kind::SET_HASH_ALGORITHM)));
        let refusal = HashRefusal::Request { what, status: Status::NotSupported };
        assert_eq!(world.vif.hash().1, HashState::Refused(refusal));
    }
    // Types that the backend cannot hash, a table too long for it, and a queue too many.
    world.vif.set_hash(Some(wish(&[0; 3]))).unwrap();
    serve(&mut world, &mut served, |request| match request.kind {
        kind::GET_HASH_FLAGS => (Status::Success, 0xffff_fff7),
        _ => willing(request),
    });
    let HashState::Refused(HashRefusal::Types { offered, .. }) = world.vif.hash().1 else {
        panic!("{:?}", world.vif.hash())
    };
    assert_eq!(offered.bits(), 7);
    world.vif.set_hash(Some(wish(&[0; 3]))).unwrap();
    serve(&mut world, &mut served, |request| match request.kind {
        kind::GET_HASH_MAPPING_SIZE => (Status::Success, 2),
        _ => willing(request),
    });
    let refusal = HashRefusal::Mapping { asked: 3, most: 2 };
    assert_eq!(world.vif.hash().1, HashState::Refused(refusal));
    world.vif.set_hash(Some(wish(&[0, 1]))).unwrap();
    assert_eq!(serve(&mut world, &mut served, willing), [kind::SET_HASH_ALGORITHM]);
    let refusal = HashRefusal::Queue { found: 1, queues: 1 };
    assert_eq!(world.vif.hash().1, HashState::Refused(refusal));
    // Changes that come while one is under way: the last one counts.
    for length in 1..5 {
        world.vif.set_hash(Some(wish(&vec![0; length]))).unwrap();
    }
    let mut sizes = Vec::new();
    serve(&mut world, &mut served, |request| {
        if request.kind == kind::SET_HASH_MAPPING_SIZE {
            sizes.push(request.data[0]);
        }
        willing(request)
    });
    assert_eq!((sizes, world.vif.hash().1), (vec![1, 4], HashState::Set));
    served.close(&mut world.server);
    world.ends(rings);
}

#[test]
fn ctrl_untaken_answers_do_not_delay_a_change() {
    let (mut world, rings, mut served) = connected();
    for queue in 0..128 {
        submit(&mut world, Message::GetGrefMappingSize { queue }).unwrap();
    }
    // Every slot of the ring has a request that is not answered, and the change waits.
    world.vif.set_hash(Some(wish(&[0]))).unwrap();
    let requests = served.requests();
    assert_eq!(requests.len(), 128);
    let answers: Vec<_> = requests.iter().map(|r| r.answer(Status::Success, r.data[0])).collect();
    served.answer(&mut world.server, &answers);
    world.vif.take_answers().unwrap();
    // The application takes none of the answers.
    for _ in 0..2 {
        assert_eq!(serve(&mut world, &mut served, willing), [7, 1, 3, 4, 5, 6, 2]);
        assert_eq!(world.vif.hash().1, HashState::Set);
        world.vif.set_hash(Some(wish(&[0]))).unwrap();
    }
    serve(&mut world, &mut served, willing);
    // They are all there, and the application asks nothing more before it takes one.
    for queue in 0..128 {
        assert_eq!(submit(&mut world, WISH).is_err(), queue == 0);
        assert_eq!(next(&mut world).unwrap().message, Message::GetGrefMappingSize { queue });
    }
    served.close(&mut world.server);
    world.ends(rings);
}

#[test]
fn ctrl_a_backend_without_the_ring() {
    let mut world = World::new();
    let rings = world.connect();
    assert_eq!(world.server.front_key("ctrl-ring-ref"), None);
    world.vif.set_hash(Some(wish(&[]))).unwrap();
    assert_eq!(world.vif.hash().1, HashState::NoRing);
    assert!(world.vif.control().is_none());
    world.ends(rings);
}

#[test]
fn ctrl_keys_of_an_earlier_connection_are_removed() {
    let (mut world, rings, served) = connected();
    served.close(&mut world.server);
    world.server.detach(rings);
    world.server.key("feature-ctrl-ring", b"0");
    world.server.state(XenbusState::Closing);
    world.until_shown(XenbusState::Closed);
    let rings = world.connect();
    assert_eq!(world.server.front_key("ctrl-ring-ref"), None);
    assert_eq!(world.server.front_key("event-channel-ctrl"), None);
    world.ends(rings);
}
