//! Port specs: accepted texts, and the errors of others.

use super::*;

fn refused(text: &str) -> String {
    text.parse::<PortSpec>().unwrap_err().to_string()
}

#[test]
fn every_kind_parses_and_prints_itself() {
    for text in [
        "tap",
        "tap:vif1.0",
        "vhost",
        "vhost:vif1.0",
        "packet:eth0",
        "null",
        "echo",
        "check",
        "check:from=00:16:3e:00:00:01",
        "generator:size=64,rate=0,burst=64,flows=1,to=ff:ff:ff:ff:ff:ff,from=00:16:3e:00:00:02",
        "generator:size=64,rate=0,burst=64,flows=1",
        "generator:size=1518,rate=1000,burst=1,flows=9,count=5",
        "generator:size=64,rate=1000,burst=1,flows=1,timed=10",
        "generator:size=64,rate=0,burst=1,flows=1,window=1,timed=16",
        "pcap:in=a.pcap",
        "pcap:out=b.pcapng",
        "pcap:in=/x/a=b.cap,out=b.pcap",
    ] {
        let spec: PortSpec = text.parse().unwrap();
        assert_eq!(spec.to_string(), text);
    }
}

#[test]
fn generators_take_units_and_defaults() {
    let parse = |text: &str| text.parse::<PortSpec>().unwrap();
    assert_eq!(parse("generator"), PortSpec::Generator(GeneratorConfig::default()));
    let config = GeneratorConfig {
        rate: 1_500_000,
        count: Some(2_000_000_000),
        ..GeneratorConfig::default()
    };
    assert_eq!(parse("generator:rate=1.5Mpps,count=2G"), PortSpec::Generator(config));
}

#[test]
fn errors_say_what_was_found_and_expected() {
    for (text, parts) in [
        ("", &["\"\"", "tap[:NAME]"][..]),
        ("tapp:x", &["\"tapp\"", "generator"]),
        ("null:x", &["\"x\"", "just `null`"]),
        ("tap:", &["nothing"]),
        ("tap:a b", &["white space"]),
        ("packet", &["no interface", "packet:NAME"]),
        ("packet:", &["nothing"]),
        ("packet:eth0/1", &["'/'"]),
        ("packet:0123456789abcdef", &["16 bytes", "at most 15"]),
        ("tap:a%d", &["'%'"]),
        ("tap:0123456789abcdef", &["16 bytes", "at most 15"]),
        ("generator:size", &["\"size\"", "KEY=VALUE"]),
        ("generator:size=", &["\"size=\"", "KEY=VALUE"]),
        ("generator:size=64,", &["\"\"", "KEY=VALUE"]),
        ("generator:sise=64", &["\"sise\"", "size, rate"]),
        ("generator:size=64,size=65", &["\"size\"", "twice"]),
        ("generator:size=big", &["size=\"big\"", "whole number"]),
        ("generator:size=-1", &["size=\"-1\""]),
        ("generator:rate=99999999999G", &["rate=\"99999999999G\""]),
        ("generator:flows=5G", &["flows=\"5G\""]),
        ("generator:rate=k", &["rate=\"k\""]),
        ("generator:size=13", &["size 13", "14 to 65535"]),
        ("generator:to=1", &["to=\"1\"", "00:16:3e:00:00:01"]),
        ("generator:from=01:00:00:00:00:00", &["from=", "one device's own"]),
        ("check:", &["\"\"", "KEY of from"]),
        ("check:to=1", &["no key \"to\"", "from"]),
        ("check:from=00:00:00:00:00:00", &["from=", "one device's own"]),
        ("generator:burst=0", &["burst 0"]),
        ("generator:flows=0", &["0 flows", "1 to 65536"]),
        ("pcap", &["no file", "pcap:in=FILE"]),
        ("pcap:file=x", &["\"file\"", "in, out"]),
        ("pcap:out=x.cap", &["x.cap", ".pcapng"]),
    ] {
        let message = refused(text);
        for part in parts {
            assert!(message.contains(part), "{text:?}: {message}");
        }
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn specs_open() {
    let mut port = "generator:count=1".parse::<PortSpec>().unwrap().open().unwrap();
    assert!(port.readiness().is_now());
    let mut buf = vec![0; crate::RECV_BUFFER];
    assert_eq!(port.recv(&mut buf).unwrap().unwrap().len, 64);
    assert_eq!(port.recv(&mut buf).unwrap(), None);
    assert!(!port.readiness().is_now());
    assert_eq!(PortSpec::Null.open().unwrap().name(), "null");
    let missing = "pcap:in=/nonexistent.pcap".parse::<PortSpec>().unwrap();
    let message = missing.open().map(drop).unwrap_err().to_string();
    assert!(message.contains("/nonexistent.pcap"), "{message}");
}
