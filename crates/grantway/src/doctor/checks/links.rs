//! Findings about the interfaces of vifs: each exists, is up, is in its bridge, and has the right
//! MTU. No interface is left over.

use crate::doctor::facts::links::Link;
use crate::doctor::facts::vifs::VifNodes;
use crate::doctor::finding::Finding;
use crate::doctor::hints::{Hints, quoted};
use grantway_netif::XenbusState;

/// Judges the interfaces of the vifs. Returns a finding for each fault, and one with the number of
/// interfaces in order.
pub fn judge(vifs: &[VifNodes], links: &[Link], hints: &Hints) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sound = 0;
    // Until its script is done, an interface may be unfinished.
    let is_set_up = |vif: &&VifNodes| !hints.is_scripted() || vif.hotplug_status.is_some();
    for vif in vifs.iter().filter(is_set_up) {
        match link_of(vif, links) {
            Some(link) => {
                let found = one(vif, link, links, hints);
                sound += usize::from(found.is_empty());
                findings.extend(found);
            }
            // On the embedded host a port may be anything, so an interface need not exist.
            None if hints.is_scripted()
                && matches!(
                    vif.backend,
                    Some(XenbusState::Connected | XenbusState::Reconfigured)
                ) =>
            {
                findings.push(Finding::fail(
                    vif.default_name(),
                    format!("connected, but there is no interface {}", names(vif).join(" or ")),
                    hints.log(),
                ));
            }
            None => {}
        }
    }
    if sound > 0 {
        findings.push(Finding::ok("interfaces", format!("set up as their vifs require: {sound}")));
    }
    findings
}

fn one(vif: &VifNodes, link: &Link, links: &[Link], hints: &Hints) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = &link.name;
    let word = quoted(name);
    if !link.up {
        findings.push(Finding::warn(name, "down", format!("ip link set dev {word} up")));
    }
    if let (Some(wanted), Some(found)) = (vif.mtu, link.mtu)
        && wanted != found
    {
        findings.push(Finding::warn(
            name,
            format!("its MTU is {found}, but the guest's is {wanted}"),
            format!("ip link set dev {word} mtu {wanted}"),
        ));
    }
    // Hotplug scripts put interfaces into bridges, so without scripts bridges are not looked at.
    if !hints.is_scripted() {
        return findings;
    }
    match (&link.bridge, &vif.bridge) {
        (None, Some(bridge)) => findings.push(Finding::fail(
            name,
            format!("not in a bridge; its vif requires {bridge}"),
            format!("ip link set dev {word} master {}", quoted(bridge)),
        )),
        (Some(bridge), _) => {
            let mtu = links.iter().find(|l| l.name == *bridge).and_then(|l| l.mtu);
            if let (Some(of_bridge), Some(mtu)) = (mtu, link.mtu)
                && of_bridge != mtu
            {
                findings.push(Finding::warn(
                    name,
                    format!("its MTU is {mtu}, but that of its bridge {bridge} is {of_bridge}"),
                    format!("ip link set dev {} mtu {mtu}", quoted(bridge)),
                ));
            }
        }
        (None, None) => {}
    }
    findings
}

/// Finds TAPs that belong to no vif of the store.
pub fn leftovers(vifs: &[VifNodes], links: &[Link]) -> Vec<Finding> {
    let known = |link: &&Link| !vifs.iter().any(|vif| is_of(vif, &link.name));
    let taps = links.iter().filter(|link| link.tap).filter(known);
    let each = |link: &Link| {
        let (name, word) = (&link.name, quoted(&link.name));
        if is_vif_name(name) {
            let found = "TAP of a vif that is not in the store";
            return Some(Finding::warn(name, found, format!("ip link del dev {word}")));
        }
        // A TAP of any other name may be that of another program, or of a vif with a name of its
        // own. The operator has to look. A TAP that is in use has a carrier.
        (link.persistent && !link.carrier).then(|| {
            let found = "unused TAP that belongs to no vif in the store";
            let remedy = format!(
                "ip -d tuntap; if no other program needs it: ip link del dev \
                                  {word}"
            );
            Finding::warn(name, found, remedy)
        })
    };
    let found: Vec<_> = taps.filter_map(each).collect();
    match found.is_empty() {
        true => vec![Finding::ok("leftovers", "none: every TAP belongs to a vif")],
        false => found,
    }
}

/// Returns the names that a vif's interface may have, the likelier first.
fn names(vif: &VifNodes) -> Vec<String> {
    vif.vifname.iter().cloned().chain([vif.default_name()]).collect()
}

fn link_of<'a>(vif: &VifNodes, links: &'a [Link]) -> Option<&'a Link> {
    names(vif).iter().find_map(|name| links.iter().find(|link| link.name == *name))
}

/// Returns true if an interface is that of a vif, or that of the device model beside it.
fn is_of(vif: &VifNodes, name: &str) -> bool {
    names(vif).iter().any(|own| name == own || name.strip_suffix("-emu") == Some(own))
}

/// Returns true for a name such as `vif1.0`, or `vif1.0-emu`, which a device model makes.
fn is_vif_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("vif") else { return false };
    let rest = rest.strip_suffix("-emu").unwrap_or(rest);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    rest.split_once('.').is_some_and(|(domain, devid)| number(domain) && number(devid))
}
