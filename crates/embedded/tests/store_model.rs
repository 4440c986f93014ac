//! Random operations by two clients, in transactions and outside, against a
//! model: a sorted map of paths, copied whole at each transaction's start.

mod store_support;

use grantway_hypervisor::StoreErrno as E;
use proptest::prelude::*;
use std::collections::BTreeMap;
use store_support::Talk;

#[derive(Debug, Clone)]
enum Op {
    Write(String, u8),
    Mkdir(String),
    Rm(String),
    Read(String),
    List(String),
    Begin,
    End(bool),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(0..2_u8, 1..4).prop_map(|names| {
        let names: Vec<_> = names.iter().map(|n| char::from(b'a' + n)).collect();
        names.iter().map(|n| format!("/{n}")).collect()
    })
}

fn op() -> impl Strategy<Value = (usize, bool, Op)> {
    let op = prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(p, v)| Op::Write(p, v)),
        1 => path().prop_map(Op::Mkdir),
        2 => path().prop_map(Op::Rm),
        2 => path().prop_map(Op::Read),
        1 => path().prop_map(Op::List),
        2 => Just(Op::Begin),
        2 => any::<bool>().prop_map(Op::End),
    ];
    (0..2_usize, any::<bool>(), op)
}

type Map = BTreeMap<String, String>;

fn above(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

fn write(map: &mut Map, path: &str, value: &str) {
    if above(path) != path && !map.contains_key(above(path)) {
        write(map, above(path), "");
    }
    map.insert(path.to_owned(), value.to_owned());
}

fn rm(map: &mut Map, path: &str) -> Result<(), E> {
    if !map.contains_key(path) && !map.contains_key(above(path)) {
        return Err(E::Enoent);
    }
    map.retain(|p, _| p != path && !p.starts_with(&format!("{path}/")));
    Ok(())
}

fn list(map: &Map, path: &str) -> Result<Vec<String>, E> {
    map.get(path).ok_or(E::Enoent)?;
    let inside = |p: &&String| *p != "/" && above(p) == path;
    let names = map.keys().filter(inside);
    Ok(names.map(|p| p[p.rfind('/').unwrap() + 1..].to_owned()).collect())
}

/// Operation of a transaction, to be done again at its end.
enum Redo {
    Write(String, String),
    /// Removal, and if the node was there: one that was not is removed all the same.
    Rm(String, bool, Result<(), E>),
    Read(String, Result<String, E>),
    List(String, Result<Vec<String>, E>),
}

struct Tx {
    id: u32,
    map: Map,
    redo: Vec<Redo>,
    /// True if anybody else changed anything since: then `EAGAIN` may be.
    raced: bool,
}

/// Does an operation again. Returns true if the result is that of the first time.
fn redo(map: &mut Map, what: &Redo) -> bool {
    match what {
        Redo::Write(path, value) => {
            write(map, path, value);
            true
        }
        Redo::Rm(path, _, gave) => rm(map, path) == *gave,
        Redo::Read(path, gave) => map.get(path).cloned().ok_or(E::Enoent) == *gave,
        Redo::List(path, gave) => list(map, path) == *gave,
    }
}

fn changes(tx: &Tx) -> bool {
    tx.redo.iter().any(|what| matches!(what, Redo::Write(..) | Redo::Rm(_, true, _)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn agrees_with_a_map(ops in prop::collection::vec(op(), 0..250)) {
        let mut talk = Talk::new();
        let conns = [talk.connect(0), talk.connect(0)];
        let mut live = Map::from([("/".to_owned(), String::new())]);
        let mut txs: [Option<Tx>; 2] = [None, None];
        for (who, in_tx, op) in ops {
            let c = conns[who];
            let id = txs[who].as_ref().filter(|_| in_tx).map_or(0, |tx| tx.id);
            let before = live.clone();
            let map = match &mut txs[who] {
                Some(tx) if in_tx => &mut tx.map,
                _ => &mut live,
            };
            let mut done: Option<Redo> = None;
            match op {
                Op::Write(path, value) => {
                    let value = value.to_string();
                    talk.write(c, id, &path, &value).unwrap();
                    write(map, &path, &value);
                    done = Some(Redo::Write(path, value));
                }
                Op::Mkdir(path) => {
                    talk.mkdir(c, id, &path).unwrap();
                    let value = map.get(&path).cloned();
                    if value.is_none() {
                        write(map, &path, "");
                    }
                    done = Some(match value {
                        Some(value) => Redo::Read(path, Ok(value)),
                        None => Redo::Write(path, String::new()),
                    });
                }
                Op::Rm(path) => {
                    let there = map.contains_key(&path);
                    let gave = talk.rm(c, id, &path);
                    prop_assert_eq!(gave, rm(map, &path));
                    done = Some(Redo::Rm(path, there, gave));
                }
                Op::Read(path) => {
                    let gave = talk.read(c, id, &path);
                    let expected = map.get(&path).cloned().ok_or(E::Enoent);
                    prop_assert_eq!(&gave, &expected);
                    done = Some(Redo::Read(path, gave));
                }
                Op::List(path) => {
                    let gave = talk.list(c, id, &path);
                    prop_assert_eq!(&gave, &list(map, &path));
                    done = Some(Redo::List(path, gave));
                }
                Op::Begin => {
                    if txs[who].is_none() {
                        let id = talk.begin(c).unwrap();
                        let map = live.clone();
                        txs[who] = Some(Tx { id, map, redo: Vec::new(), raced: false });
                    }
                }
                Op::End(keep) => {
                    if let Some(tx) = txs[who].take() {
                        match talk.end(c, tx.id, keep) {
                            Ok(()) if keep => {
                                // The operations ran as if just now, reads and all. Those of a
                                // transaction that only read ran at its start.
                                for what in tx.redo.iter().filter(|_| changes(&tx)) {
                                    prop_assert!(redo(&mut live, what));
                                }
                                if !tx.raced {
                                    prop_assert_eq!(&live, &tx.map);
                                }
                            }
                            Ok(()) => {}
                            Err(e) => {
                                prop_assert_eq!(e, E::Eagain);
                                prop_assert!(keep && tx.raced && changes(&tx));
                            }
                        }
                    }
                }
            }
            if let Some(done) = done && let (Some(tx), true) = (&mut txs[who], id != 0) {
                tx.redo.push(done);
            }
            // A value that is written over with itself is a change, too.
            if id == 0 || live != before {
                txs.iter_mut().flatten().for_each(|tx| tx.raced = true);
            }
        }
        // The whole tree, at the end.
        for (path, value) in &live {
            prop_assert_eq!(&talk.read(conns[0], 0, path).unwrap(), value);
            prop_assert_eq!(talk.list(conns[0], 0, path), list(&live, path));
        }
        let nodes = talk.server.usage(grantway_hypervisor::DomId::ZERO).nodes;
        prop_assert_eq!(nodes, live.len());
    }
}
