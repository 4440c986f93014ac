//! A reader of files of rules.

use super::faults::Faults;
use super::names::NAMES_MAX;
use super::section::{Place, Section};
use super::{FilterRules, FirewallRules, Names, Rules, TextFault, VifRules};
use crate::batch::PortId;
use crate::bucket::Rate;
use crate::headers::Network;
use crate::nodes::bridge::table::Learning;
use crate::nodes::classifier::filter::{Filter, Treatment};
use crate::nodes::classifier::key::Pattern;
use crate::nodes::classifier::table::FilterError;
use crate::nodes::firewall::matcher::MatcherError;
use crate::nodes::firewall::rule::{Action, Rule, State};
use crate::prefix::Prefix;
use crate::secret::Secret;
use grantway_netif::headers::protocol::TCP;
use std::ops::RangeInclusive;
use toml_edit::Document;

/// Largest file, in bytes.
pub const FILE_MAX: usize = 16 << 20;
/// Most faults that [`check`] finds.
pub const FAULTS_MAX: usize = 100;

const TOP: &[&str] = &["bridge", "firewall", "vif", "rule", "filter", "flows"];
const BRIDGE: &[&str] = &["age", "stations"];
const FIREWALL: &[&str] = &["default"];
const VIF: &[&str] = &["name", "mac", "addresses", "isolated", "stations", "rate", "burst"];
const RULE: &[&str] = &[
    "name",
    "action",
    "network",
    "protocol",
    "from",
    "to",
    "from-ports",
    "to-ports",
    "vif",
    "state",
];
const FILTER: &[&str] = &[
    "name",
    "action",
    "queue",
    "rate",
    "burst",
    "port",
    "network",
    "protocol",
    "from",
    "to",
    "from-port",
    "to-port",
    "tcp-flags",
    "from-mac",
    "to-mac",
    "type",
    "vlan",
    "vif",
];

/// Reads rules. `names` gives numbers to the names of vifs.
///
/// # Errors
/// The first fault in the text: what it is, where it is, and what to do about it.
pub fn parse(text: &str, names: &mut Names, secret: Secret) -> Result<Rules, TextFault> {
    read(text, names, secret, 1).map_err(|mut faults| faults.swap_remove(0))
}

/// Reads rules as [`parse`] does, and looks for further faults where there is one.
///
/// # Errors
/// Up to [`FAULTS_MAX`] faults, in the order of the text. Text that is not TOML has one.
pub fn check(text: &str, names: &mut Names, secret: Secret) -> Result<Rules, Vec<TextFault>> {
    read(text, names, secret, FAULTS_MAX)
}

/// Reads rules. An error has at least one fault, and at most `most`.
fn read(
    text: &str,
    names: &mut Names,
    secret: Secret,
    most: usize,
) -> Result<Rules, Vec<TextFault>> {
    let document = document(text).map_err(|fault| vec![fault])?;
    // Each part of the file adds to the rules; a part that is missing leaves the default.
    let faults = Faults::new(most);
    let top = Section::new(text, (document.as_table(), None), "the file", TOP, &faults);
    let mut rules = Rules::default();
    if let Some(bridge) = top.section("bridge", BRIDGE, "[bridge]") {
        rules.learning = learning(&bridge);
    }
    rules.flows = top.read("flows", Place::truth).unwrap_or(rules.flows);
    for section in top.sections("vif", VIF, "[[vif]]") {
        vif(&section, names, &mut rules);
    }
    firewall(&top, names, &mut rules);
    filters(&top, names, secret, &mut rules);
    if faults.is_empty() { Ok(rules) } else { Err(faults.into_sorted()) }
}

/// Reads text as TOML.
fn document(text: &str) -> Result<Document<&str>, TextFault> {
    // A file that is too long is not even read as TOML.
    if text.len() > FILE_MAX {
        let found = format!("{} bytes", text.len());
        let expected = format!("at most {FILE_MAX} bytes");
        return Err(TextFault::at(text, 0, found, expected, "write several addresses into a rule"));
    }
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        TextFault::not_toml(text, at, error.message())
    })
}

fn learning(bridge: &Section<'_>) -> Learning {
    let mut learning = Learning::default();
    if let Some(age) = bridge.read("age", |place| place.number(1, 1_000_000)) {
        learning.age = age * 1_000_000_000;
    }
    if let Some(stations) = bridge.read("stations", |place| place.number(1, 16_384)) {
        learning.stations = stations as u32;
    }
    learning
}

fn vif(section: &Section<'_>, names: &mut Names, rules: &mut Rules) {
    let expected = "the vif's name, such as \"1.0\", or \"uplink\"";
    let known = |port| rules.vif(port).is_some_and(|known| *known != VifRules::default());
    let port = section.need_read("name", expected, |name| {
        let port = port(name, names)?;
        match known(port) {
            true => Err(name.wrong("each vif once", "write all its settings into one [[vif]]")),
            false => Ok(port),
        }
    });
    let mut vif = VifRules { rate: rate(section), ..VifRules::default() };
    vif.allowed.macs = section.read_all("mac", |mac| Ok(station(mac, false)?.0));
    vif.allowed.networks = section.read_all("addresses", prefix);
    vif.isolated = section.read("isolated", Place::truth).unwrap_or(vif.isolated);
    let stations = section.read("stations", |place| place.number(0, 16_384));
    vif.stations = stations.map(|stations| stations as u32);
    if let Some(room) = port.and_then(|port| rules.vif_mut(port)) {
        *room = vif;
    }
}

fn firewall(top: &Section<'_>, names: &mut Names, rules: &mut Rules) {
    let section = top.section("firewall", FIREWALL, "[firewall]");
    let default = section.and_then(|section| section.need_read("default", ACTION, action));
    let sections = top.sections("rule", RULE, "[[rule]]");
    let read = |(number, section)| rule(number, section, names);
    let found: Vec<Option<Rule>> = sections.iter().enumerate().map(read).collect();
    unique(&sections, found.iter().map(|rule| rule.as_ref().map(|rule| rule.name.as_str())));
    // Rules are compiled only if all of them are valid.
    if !top.faults().is_empty() {
        return;
    }
    let found: Vec<Rule> = found.into_iter().flatten().collect();
    let compiled = FirewallRules::new(found, default.unwrap_or(Action::Accept));
    let compiled = compiled.map_err(|error| {
        let (found, expected, remedy) = match error {
            MatcherError::Rules { found } => (
                format!("{found} rules"),
                format!("at most {}", crate::nodes::firewall::RULES_MAX),
                "write several addresses into one rule",
            ),
            MatcherError::Memory { field } => (
                format!("{field} that overlap in too many ways"),
                "rules that compile into less memory".to_owned(),
                "write rules with fewer different networks or ranges",
            ),
        };
        let first = sections.first().unwrap_or(top);
        first.wrong(found, &expected, remedy)
    });
    if let Some(firewall) = top.faults().keep(compiled) {
        rules.firewall = firewall;
    }
}

const ACTION: &str = "\"accept\" or \"drop\"";

fn action(place: &Place<'_>) -> Result<Action, TextFault> {
    place.meaning(ACTION, |text| match text {
        "accept" => Some(Action::Accept),
        "drop" => Some(Action::Drop),
        _ => None,
    })
}

fn rule(number: usize, section: &Section<'_>, names: &mut Names) -> Option<Rule> {
    let state = |place: &Place<'_>| {
        let named = |text: &str| State::ALL.into_iter().find(|state| state.as_str() == text);
        place.meaning("\"new\", \"established\", \"invalid\" or \"untracked\"", named)
    };
    // All keys are read before a missing one ends it, so that all their faults are found.
    let name = name(section, "rule", number);
    let action = section.need_read("action", ACTION, action);
    let rule = Rule {
        name: name.clone().unwrap_or_default(),
        action: action.unwrap_or(Action::Drop),
        network: section.read("network", network),
        protocol: section.read("protocol", protocol),
        sources: section.read_all("from", prefix),
        targets: section.read_all("to", prefix),
        source_ports: section.read("from-ports", ports),
        target_ports: section.read("to-ports", ports),
        vifs: section.read_all("vif", |place| port(place, names)),
        states: section.read_all("state", state),
    };
    (name.is_some() && action.is_some()).then_some(rule)
}

fn filters(top: &Section<'_>, names: &mut Names, secret: Secret, rules: &mut Rules) {
    let sections = top.sections("filter", FILTER, "[[filter]]");
    let read = |(number, section)| filter(number, section, names);
    let found: Vec<Option<Filter>> = sections.iter().enumerate().map(read).collect();
    unique(&sections, found.iter().map(|filter| filter.as_ref().map(|one| one.name.as_str())));
    // Filters are compiled only if all of the file is valid.
    if !top.faults().is_empty() {
        return;
    }
    let found: Vec<Filter> = found.into_iter().flatten().collect();
    let place = |name: &str| {
        let at = found.iter().position(|filter| filter.name == name);
        at.and_then(|at| sections.get(at)).unwrap_or(top)
    };
    let compiled = FilterRules::new(found.clone(), secret).map_err(|error| match &error {
        FilterError::Filters { found } => {
            let expected = format!("at most {}", crate::nodes::classifier::FILTERS_MAX);
            top.wrong(format!("{found} filters"), &expected, "remove some")
        }
        FilterError::Masks { filter } => {
            let expected = format!("at most {}", crate::nodes::classifier::MASKS_MAX);
            let remedy = "let filters look at the same fields, or write rules";
            place(filter).wrong("one more set of fields".to_owned(), &expected, remedy)
        }
        FilterError::Twice { filter, first } => {
            let found = format!("the same key as filter {first:?} before it");
            let remedy = "remove one of them: this one never matches";
            place(filter).wrong(found, "another key for each filter", remedy)
        }
    });
    if let Some(filters) = top.faults().keep(compiled) {
        rules.filters = filters;
    }
}

const TREATMENT: &str = "\"pass\", \"drop\", \"queue\", \"mirror\", \"police\" or \"redirect\"";

fn filter(number: usize, section: &Section<'_>, names: &mut Names) -> Option<Filter> {
    let action = section.need("action", TREATMENT);
    let word = action.and_then(|action| section.faults().keep(action.text(TREATMENT)));
    // An action may need a further key.
    let treatment = match word {
        Some("pass") => Some(Treatment::Pass),
        Some("drop") => Some(Treatment::Drop),
        Some("mirror") => Some(Treatment::Mirror),
        Some("queue") => section
            .need_read("queue", "the number of a queue", |place| place.number(0, 15))
            .map(|queue| Treatment::Queue(queue as u16)),
        Some("police") => section
            .need("rate", "bytes per second")
            .and_then(|_| rate(section))
            .map(Treatment::Police),
        Some("redirect") => section
            .need_read("port", "a vif's name, or \"uplink\"", |place| port(place, names))
            .map(Treatment::Redirect),
        Some(_) => {
            let wrong = |action: Place<'_>| action.wrong(TREATMENT, "correct action");
            action.into_iter().for_each(|action| section.faults().add(wrong(action)));
            None
        }
        None => None,
    };
    // A key of another action would be without effect, so it is refused.
    let belong =
        [("queue", "queue"), ("rate", "police"), ("burst", "police"), ("port", "redirect")];
    for (key, of) in belong.into_iter().filter(|_| treatment.is_some()) {
        if let (true, Some(place)) = (word != Some(of), section.get(key)) {
            let wrong = place.wrong(&format!("no {key} with that action"), "remove it");
            section.faults().add(wrong);
        }
    }
    let pattern = pattern(section, names);
    Some(Filter { name: name(section, "filter", number)?, pattern, treatment: treatment? })
}

fn pattern(section: &Section<'_>, names: &mut Names) -> Pattern {
    // Each key adds to the pattern; a key that is missing fits every frame.
    let mut pattern = Pattern::default();
    if let Some(network) = section.read("network", network) {
        pattern = pattern.network(network);
    }
    if let Some(protocol) = section.read("protocol", protocol) {
        pattern = pattern.protocol(protocol);
    }
    if let Some(source) = section.read("from", prefix) {
        pattern = pattern.source(&source);
    }
    if let Some(target) = section.read("to", prefix) {
        pattern = pattern.target(&target);
    }
    if let Some((port, mask)) = section.read("from-port", |place| masked(place, 0xffff)) {
        pattern = pattern.source_port(port, mask);
    }
    if let Some((port, mask)) = section.read("to-port", |place| masked(place, 0xffff)) {
        pattern = pattern.target_port(port, mask);
    }
    if let Some((flags, mask)) = section.read("tcp-flags", |place| masked(place, 0xff)) {
        pattern = pattern.protocol(TCP).tcp_flags(flags as u8, mask as u8);
    }
    if let Some((mac, mask)) = section.read("from-mac", |place| station(place, true)) {
        pattern = pattern.source_mac(mac, mask);
    }
    if let Some((mac, mask)) = section.read("to-mac", |place| station(place, true)) {
        pattern = pattern.target_mac(mac, mask);
    }
    if let Some(ethertype) = section.read("type", |place| place.number(0, 0xffff)) {
        pattern = pattern.ethertype(ethertype as u16);
    }
    if let Some(vlan) = section.read("vlan", |place| place.number(0, 4095)) {
        pattern = pattern.vlan(vlan as u16);
    }
    if let Some(vif) = section.read("vif", |place| port(place, names)) {
        pattern = pattern.vif(vif);
    }
    pattern
}

fn name(section: &Section<'_>, what: &str, number: usize) -> Option<String> {
    let Some(place) = section.get("name") else { return Some(format!("{what} {}", number + 1)) };
    let name = place.meaning("a name of 1 to 64 characters", |text| {
        (1..=64).contains(&text.chars().count()).then(|| text.to_owned())
    });
    section.faults().keep(name)
}

/// Checks that each section has a name of its own. Counters go by names, and so does all that stays
/// when rules are loaded again.
fn unique<'n>(sections: &[Section<'_>], names: impl Iterator<Item = Option<&'n str>>) {
    let mut seen = std::collections::HashSet::new();
    for (section, name) in sections.iter().zip(names) {
        if let Some(name) = name.filter(|name| !seen.insert(*name)) {
            let found = format!("the name {name:?} again");
            let wrong = section.wrong(found, "a name of its own for each", "rename one of them");
            section.faults().add(wrong);
        }
    }
}

fn port(place: &Place<'_>, names: &mut Names) -> Result<PortId, TextFault> {
    let expected = "a vif's name, such as \"1.0\" (domain and number), or \"uplink\"";
    let name = place.meaning(expected, |text| {
        let numbers = |(domain, number): (&str, &str)| {
            domain.parse::<u16>().is_ok() && number.parse::<u32>().is_ok()
        };
        (text == "uplink" || text.split_once('.').is_some_and(numbers)).then(|| text.to_owned())
    })?;
    let number = names.number(&name);
    number.ok_or_else(|| place.wrong(&format!("at most {NAMES_MAX} vifs"), "remove some"))
}

fn network(place: &Place<'_>) -> Result<Network, TextFault> {
    place.meaning("\"ipv4\", \"ipv6\", \"arp\" or \"other\"", |text| match text {
        "ipv4" => Some(Network::V4),
        "ipv6" => Some(Network::V6),
        "arp" => Some(Network::Arp),
        "other" => Some(Network::Other),
        _ => None,
    })
}

fn protocol(place: &Place<'_>) -> Result<u8, TextFault> {
    if place.value.is_integer() {
        return Ok(place.number(0, 255)? as u8);
    }
    let expected = "\"tcp\", \"udp\", \"icmp\", \"icmpv6\", or a number from 0 to 255";
    place.meaning(expected, |text| match text {
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        "icmpv6" => Some(58),
        _ => None,
    })
}

fn prefix(place: &Place<'_>) -> Result<Prefix, TextFault> {
    let expected = "an IPv4 or IPv6 address, or a network, such as \"10.0.0.0/8\"";
    place.meaning(expected, |text| text.parse().ok())
}

fn ports(place: &Place<'_>) -> Result<RangeInclusive<u16>, TextFault> {
    if place.value.is_integer() {
        let port = place.number(0, 65_535)? as u16;
        return Ok(port..=port);
    }
    let expected = "a port, or ports from one to another, such as \"1024-65535\"";
    place.meaning(expected, |text| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some(first..=last)
    })
}

/// Returns a number, and the bits of it that matter.
fn masked(place: &Place<'_>, most: u16) -> Result<(u16, u16), TextFault> {
    if place.value.is_integer() {
        return Ok((place.number(0, most.into())? as u16, most));
    }
    let expected = format!("a number up to {most}, with an optional mask, such as \"80/0xfff0\"");
    place.meaning(&expected, |text| {
        let number = |text: &str| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u16::from_str_radix(digits, 16).ok()?,
                None => text.parse().ok()?,
            };
            (number <= most).then_some(number)
        };
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value)?, number(mask)?),
            None => (number(text)?, most),
        };
        (value & !mask == 0).then_some((value, mask))
    })
}

/// Returns a station's address, and the bits of it that matter.
fn station(place: &Place<'_>, with_mask: bool) -> Result<(u64, u64), TextFault> {
    let expected = match with_mask {
        true => "a MAC address such as \"00:16:3e:00:00:01\", with an optional mask after a slash",
        false => "a MAC address such as \"00:16:3e:00:00:01\"",
    };
    place.meaning(expected, |text| {
        let address = |text| {
            let bytes = grantway_ports::parse_address(text)?;
            Some(bytes.into_iter().fold(0, |sum, byte| sum << 8 | u64::from(byte)))
        };
        let full = (1 << 48) - 1;
        let (mac, mask) = match text.split_once('/') {
            Some((mac, mask)) if with_mask => (address(mac)?, address(mask)?),
            Some(_) => return None,
            None => (address(text)?, full),
        };
        (mac & !mask == 0).then_some((mac, mask))
    })
}

fn rate(section: &Section<'_>) -> Option<Rate> {
    let most = 1 << 50;
    let rate = section.read("rate", |place| place.rate(most));
    let burst = section.read("burst", |place| match section.get("rate") {
        None => Err(place.wrong("a rate, too", "add rate = ..., such as \"100Mbit/s\"")),
        Some(_) => place.number(1514, most),
    });
    // The default is a tenth of a second, but at least the largest frame.
    let usual = |bytes: u64| (bytes / 10).max(65_664);
    rate.map(|bytes| Rate { bytes, burst: burst.unwrap_or_else(|| usual(bytes)) })
}
