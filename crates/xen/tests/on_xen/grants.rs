//! Pages granted by gntalloc and mapped by gntdev, within one domain.

use crate::check::{Checks, Outcome, get, is, same};
use grantway_hypervisor::{
    Access, Error, FrontendPlatform, GrantRef, GrantStatus, Granted, Mapper, Platform,
};
use grantway_ring::{PAGE_SIZE, SharedPage};
use grantway_xen::Xen;

pub fn all(checks: &mut Checks, xen: &Xen) {
    let mut check = |name, body: fn(&Xen) -> Outcome| checks.check(name, || body(xen));
    check("grants: zeroed pages with references of their own", zeroed);
    check("grants: a page that was given back comes again zeroed", zeroed_again);
    check("grants: revoke is unknown, release is deferred", unknown);
    check("grants: more than gntalloc has is refused with its remedy", exhausted);
    check("map: too many at a time is refused", too_many);
    check("map: a domain that is not there", no_domain);
    if !is_pv() {
        check("map: what this domain granted to itself is refused, as it is not PV", not_pv);
        return;
    }
    check("map: both sides see each other's writes", both_ways);
    check("map: for reading, of a grant for reading and of one for writing", for_reading);
    check("map: for writing of a grant for reading is refused", write_refused);
    check("map: the first bad reference is named, and nothing is mapped", bad_named);
    check("map: the run is unmapped with its last page", last_handle);
    check("map: one grant twice, at once and in one list", twice);
    check("map: a run of 512", many);
    check("map: a grant that was given back maps no more", given_back);
    check("map: a page outlives its granter's handle", outlives);
}

/// Returns true if this domain may map pages that it granted to itself.
pub fn is_pv() -> bool {
    std::fs::read_to_string("/sys/hypervisor/guest_type").is_ok_and(|kind| kind.trim() == "PV")
}

fn not_pv(xen: &Xen) -> Outcome {
    let granted = own(xen, 1, Access::ReadWrite)?;
    let error = refusal(xen, &granted.grefs, Access::ReadOnly)?;
    println!("        {error}");
    is("another error", matches!(error, Error::Protocol { .. }))
}

fn own(xen: &Xen, pages: usize, access: Access) -> Result<Granted, String> {
    get(xen.grant(xen.domain(), pages, access))
}

pub fn read(page: &SharedPage) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0xee; PAGE_SIZE];
    get(page.read(0, &mut bytes))?;
    Ok(bytes)
}

pub fn page(granted: &Granted, index: usize) -> Result<(SharedPage, GrantRef), String> {
    granted.page(index).ok_or_else(|| format!("no page {index}"))
}

fn zeroed(xen: &Xen) -> Outcome {
    let granted = own(xen, 5, Access::ReadWrite)?;
    same("pages", granted.run.pages(), 5)?;
    let mut grefs = granted.grefs.clone();
    grefs.dedup();
    same("references", grefs.len(), 5)?;
    is("a reserved reference", grefs.iter().all(|gref| gref.0 >= GrantRef::FIRST_FREE))?;
    for index in 0..5 {
        is("not zeroed", read(&page(&granted, index)?.0)? == [0; PAGE_SIZE])?;
    }
    same("granted", xen.counters().granted, 5)?;
    same("peer", granted.peer, xen.domain())
}

fn zeroed_again(xen: &Xen) -> Outcome {
    for _ in 0..8 {
        let granted = own(xen, 64, Access::ReadWrite)?;
        for index in 0..64 {
            let page = page(&granted, index)?.0;
            is("a stale byte (XSA-403)", read(&page)? == [0; PAGE_SIZE])?;
            get(page.write(0, &[0x5a; PAGE_SIZE]))?;
        }
        xen.release(granted);
    }
    Ok(())
}

fn unknown(xen: &Xen) -> Outcome {
    let before = xen.counters();
    let granted = own(xen, 3, Access::ReadOnly)?;
    let released = xen.release(granted);
    same("released", (released.revoked, released.deferred), (0, 3))?;
    let since = xen.counters().since(&before);
    same("deferred", (since.deferred, xen.counters().granted), (3, before.granted))
}

fn exhausted(xen: &Xen) -> Outcome {
    let Err(error) = xen.grant(xen.domain(), 1 << 20, Access::ReadWrite) else {
        return Err("a million pages were granted".into());
    };
    println!("        {error}");
    is("not exhausted", matches!(error, Error::Exhausted { .. }))?;
    same("granted", xen.counters().granted, 0)
}

fn both_ways(xen: &Xen) -> Outcome {
    let granted = own(xen, 4, Access::ReadWrite)?;
    let before = xen.counters();
    let run = get(xen.map(xen.domain(), &granted.grefs, Access::ReadWrite))?;
    same("pages", run.pages(), 4)?;
    for index in 0..4_usize {
        let (ours, theirs) = (page(&granted, index)?.0, run.page(index).ok_or("no page")?);
        get(ours.write(10, &[index as u8 + 1; 20]))?;
        get(theirs.write(4000, &[index as u8 + 101; 96]))?;
        let (seen, shown) = (read(&theirs)?, read(&ours)?);
        same("the granter's", &seen[10..30], &[index as u8 + 1; 20][..])?;
        same("the mapper's", &shown[4000..], &[index as u8 + 101; 96][..])?;
        is("two views differ", seen == shown)?;
    }
    let since = xen.counters().since(&before);
    same("counted", (since.maps, since.map_batches, xen.counters().mapped), (4, 1, 4))?;
    drop(run);
    let since = xen.counters().since(&before);
    same("counted", (since.unmaps, since.unmap_batches, xen.counters().mapped), (4, 1, 0))
}

fn for_reading(xen: &Xen) -> Outcome {
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let granted = own(xen, 2, access)?;
        let run = get(xen.map(xen.domain(), &granted.grefs, Access::ReadOnly))?;
        get(page(&granted, 1)?.0.write(0, b"hello"))?;
        let seen = read(&run.page(1).ok_or("no page")?)?;
        same("read", &seen[..5], b"hello")?;
    }
    Ok(())
}

fn refusal(xen: &Xen, grefs: &[GrantRef], access: Access) -> Result<Error, String> {
    match xen.map(xen.domain(), grefs, access) {
        Ok(_) => Err("it was mapped".into()),
        Err(error) => Ok(error),
    }
}

fn write_refused(xen: &Xen) -> Outcome {
    let writable = own(xen, 2, Access::ReadWrite)?;
    let readable = own(xen, 2, Access::ReadOnly)?;
    let grefs = [writable.grefs.clone(), readable.grefs.clone()].concat();
    let error = refusal(xen, &grefs, Access::ReadWrite)?;
    println!("        {error}");
    let expected = Error::Grant {
        domain: xen.domain(),
        gref: readable.grefs[0],
        status: GrantStatus::PERMISSION_DENIED,
    };
    same("error", error, expected)?;
    same("mapped", xen.counters().mapped, 0)
}

fn bad_named(xen: &Xen) -> Outcome {
    let granted = own(xen, 8, Access::ReadWrite)?;
    for place in [0, 3, 7] {
        for bad in [3_000, 60_000_000] {
            let mut grefs = granted.grefs.clone();
            grefs[place] = GrantRef(bad);
            let error = refusal(xen, &grefs, Access::ReadWrite)?;
            if place == 3 {
                println!("        {error}");
            }
            let Error::Grant { gref, status, .. } = error else {
                return Err(error.to_string());
            };
            same("the reference", gref, GrantRef(bad))?;
            is("its status is okay", !status.is_okay())?;
        }
    }
    same("mapped", xen.counters().mapped, 0)?;
    // The list without the bad reference still maps.
    get(xen.map(xen.domain(), &granted.grefs, Access::ReadWrite)).map(drop)
}

fn no_domain(xen: &Xen) -> Outcome {
    let peer = grantway_hypervisor::DomId(32_000);
    let error = xen.map(peer, &[GrantRef(8), GrantRef(9)], Access::ReadOnly);
    let expected =
        Error::Grant { domain: peer, gref: GrantRef(8), status: GrantStatus::BAD_DOMAIN };
    same("error", error.err(), Some(expected))
}

fn last_handle(xen: &Xen) -> Outcome {
    let granted = own(xen, 3, Access::ReadWrite)?;
    let run = get(xen.map(xen.domain(), &granted.grefs, Access::ReadWrite))?;
    let one = run.page(2).ok_or("no page")?;
    drop(run);
    same("mapped", xen.counters().mapped, 3)?;
    get(one.write(0, &[9]))?;
    same("written", read(&page(&granted, 2)?.0)?[0], 9)?;
    drop(one);
    same("mapped", xen.counters().mapped, 0)
}

fn twice(xen: &Xen) -> Outcome {
    let granted = own(xen, 1, Access::ReadWrite)?;
    let list = [granted.grefs[0]; 2];
    let one = get(xen.map(xen.domain(), &list, Access::ReadWrite))?;
    let two = get(xen.map(xen.domain(), &list, Access::ReadOnly))?;
    get(one.page(0).ok_or("no page")?.write(0, &[7]))?;
    for run in [&one, &two] {
        same("second", read(&run.page(1).ok_or("no page")?)?[0], 7)?;
    }
    drop(one);
    same("after the first went", read(&two.page(0).ok_or("no page")?)?[0], 7)
}

fn many(xen: &Xen) -> Outcome {
    let granted = own(xen, 512, Access::ReadWrite)?;
    let run = get(xen.map(xen.domain(), &granted.grefs, Access::ReadWrite))?;
    for index in 0..512 {
        get(page(&granted, index)?.0.write(8, &(index as u32).to_ne_bytes()))?;
    }
    for index in 0..512 {
        let mut word = [0; 4];
        get(run.page(index).ok_or("no page")?.read(8, &mut word))?;
        same("page", u32::from_ne_bytes(word), index as u32)?;
    }
    Ok(())
}

fn given_back(xen: &Xen) -> Outcome {
    let granted = own(xen, 2, Access::ReadWrite)?;
    let grefs = granted.grefs.clone();
    xen.release(granted);
    let error = refusal(xen, &grefs, Access::ReadOnly)?;
    is("not a grant's error", matches!(error, Error::Grant { gref, .. } if gref == grefs[0]))
}

fn outlives(xen: &Xen) -> Outcome {
    let granted = own(xen, 2, Access::ReadWrite)?;
    let run = get(xen.map(xen.domain(), &granted.grefs, Access::ReadWrite))?;
    get(page(&granted, 0)?.0.write(0, b"kept"))?;
    xen.release(granted);
    // Later grants do not get these pages.
    let others = own(xen, 200, Access::ReadWrite)?;
    for index in 0..200 {
        get(page(&others, index)?.0.write(0, &[0xaa; PAGE_SIZE]))?;
    }
    let mapped = run.page(0).ok_or("no page")?;
    same("read", &read(&mapped)?[..4], b"kept")?;
    get(mapped.write(0, &[0xbb; PAGE_SIZE]))?;
    is("the page was used again", read(&page(&others, 0)?.0)? == [0xaa; PAGE_SIZE])
}

fn too_many(xen: &Xen) -> Outcome {
    let peer = grantway_hypervisor::DomId(32_000);
    let Err(error) = xen.map(peer, &vec![GrantRef(8); 70_000], Access::ReadOnly) else {
        return Err("they were mapped".into());
    };
    println!("        {error}");
    is("not exhausted", matches!(error, Error::Exhausted { .. }))
}
