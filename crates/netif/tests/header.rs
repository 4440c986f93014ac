//! Our constants and slots against Xen's public header: a C program is
//! compiled with it, and prints what the compiler makes of it.

use grantway_needs::{Need, met};
use grantway_netif::ctrl::{self, CtrlRequest, CtrlResponse, GrefEntry, GrefFlags, HashTypes};
use grantway_netif::extra::{self, EXTRA_BYTES, Extra};
use grantway_netif::rx::{self, RX_RING_ENTRIES, RX_SLOT_BYTES, RxFlags, RxRequest, RxResponse};
use grantway_netif::slots::tx::SLOTS_SENT;
use grantway_netif::state::XenbusState;
use grantway_netif::tx::{self, TX_RING_ENTRIES, TX_SLOT_BYTES, TxFlags, TxRequest, TxResponse};
use grantway_netif::{Gso, GsoKind, Hash, RING_HEADER_BYTES};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const HEADER: &str = "/usr/include/xen/io/netif.h";

/// Each line of its output is a name and a number, or a name and the bytes of
/// a slot in hexadecimal.
const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define __XEN_TOOLS__ 1
#include <xen/xen.h>
#include <xen/io/netif.h>
#include <xen/io/xenbus.h>

#define N(expression) printf("%s %lld\n", #expression, (long long)(expression))
#define FIELD(type, field) \
    printf("%s.%s %lld %lld\n", #type, #field, (long long)offsetof(struct type, field), \
           (long long)sizeof(((struct type *)0)->field))

static void bytes(const char *name, const void *at, size_t length)
{
    const unsigned char *byte = at;
    printf("%s ", name);
    while (length--)
        printf("%02x", *byte++);
    printf("\n");
}
#define SLOT(name, entry, type, ...) do { \
    entry slot; \
    type value = __VA_ARGS__; \
    memset(&slot, 0, sizeof(slot)); \
    memcpy(&slot, &value, sizeof(value)); \
    bytes(name, &slot, sizeof(slot)); \
} while (0)

int main(void)
{
    N(sizeof(struct netif_tx_request)); N(sizeof(struct netif_tx_response));
    N(sizeof(struct netif_rx_request)); N(sizeof(struct netif_rx_response));
    N(sizeof(struct netif_extra_info)); N(sizeof(struct xen_netif_gref));
    N(sizeof(struct xen_netif_ctrl_request)); N(sizeof(struct xen_netif_ctrl_response));
    N(sizeof(union netif_tx_sring_entry)); N(sizeof(union netif_rx_sring_entry));
    N(sizeof(union xen_netif_ctrl_sring_entry));
    N(__CONST_RING_SIZE(netif_tx, 4096)); N(__CONST_RING_SIZE(netif_rx, 4096));
    N(__CONST_RING_SIZE(xen_netif_ctrl, 4096));
    N(offsetof(struct netif_tx_sring, ring)); N(offsetof(struct netif_rx_sring, ring));
    N(offsetof(struct xen_netif_ctrl_sring, ring));

    FIELD(netif_tx_request, gref); FIELD(netif_tx_request, offset);
    FIELD(netif_tx_request, flags); FIELD(netif_tx_request, id); FIELD(netif_tx_request, size);
    FIELD(netif_tx_response, id); FIELD(netif_tx_response, status);
    FIELD(netif_rx_request, id); FIELD(netif_rx_request, gref);
    FIELD(netif_rx_response, id); FIELD(netif_rx_response, offset);
    FIELD(netif_rx_response, flags); FIELD(netif_rx_response, status);
    FIELD(xen_netif_ctrl_request, id); FIELD(xen_netif_ctrl_request, type);
    FIELD(xen_netif_ctrl_request, data);
    FIELD(xen_netif_ctrl_response, id); FIELD(xen_netif_ctrl_response, type);
    FIELD(xen_netif_ctrl_response, status); FIELD(xen_netif_ctrl_response, data);
    FIELD(xen_netif_gref, ref); FIELD(xen_netif_gref, flags); FIELD(xen_netif_gref, status);
    FIELD(netif_extra_info, type); FIELD(netif_extra_info, flags);
    FIELD(netif_extra_info, u.gso.size); FIELD(netif_extra_info, u.gso.type);
    FIELD(netif_extra_info, u.gso.features); FIELD(netif_extra_info, u.mcast.addr);
    FIELD(netif_extra_info, u.hash.type); FIELD(netif_extra_info, u.hash.algorithm);
    FIELD(netif_extra_info, u.hash.value);

    N(XEN_NETIF_NR_SLOTS_MIN); N(XEN_NETIF_MAX_TX_SIZE);
    N(NETTXF_csum_blank); N(NETTXF_data_validated); N(NETTXF_more_data); N(NETTXF_extra_info);
    N(NETRXF_data_validated); N(NETRXF_csum_blank); N(NETRXF_more_data); N(NETRXF_extra_info);
    N(NETRXF_gso_prefix);
    N(NETIF_RSP_OKAY); N(NETIF_RSP_ERROR); N(NETIF_RSP_DROPPED); N(NETIF_RSP_NULL);
    N(XEN_NETIF_EXTRA_TYPE_GSO); N(XEN_NETIF_EXTRA_TYPE_MCAST_ADD);
    N(XEN_NETIF_EXTRA_TYPE_MCAST_DEL); N(XEN_NETIF_EXTRA_TYPE_HASH);
    N(XEN_NETIF_EXTRA_FLAG_MORE); N(XEN_NETIF_GSO_TYPE_TCPV4); N(XEN_NETIF_GSO_TYPE_TCPV6);
    N(XEN_NETIF_CTRL_HASH_TYPE_IPV4); N(XEN_NETIF_CTRL_HASH_TYPE_IPV4_TCP);
    N(XEN_NETIF_CTRL_HASH_TYPE_IPV6); N(XEN_NETIF_CTRL_HASH_TYPE_IPV6_TCP);
    N(_XEN_NETIF_CTRL_HASH_TYPE_IPV6_TCP);
    N(XEN_NETIF_CTRL_HASH_ALGORITHM_NONE); N(XEN_NETIF_CTRL_HASH_ALGORITHM_TOEPLITZ);
    N(XEN_NETIF_CTRL_TYPE_INVALID);
    N(XEN_NETIF_CTRL_TYPE_GET_HASH_FLAGS); N(XEN_NETIF_CTRL_TYPE_SET_HASH_FLAGS);
    N(XEN_NETIF_CTRL_TYPE_SET_HASH_KEY); N(XEN_NETIF_CTRL_TYPE_GET_HASH_MAPPING_SIZE);
    N(XEN_NETIF_CTRL_TYPE_SET_HASH_MAPPING_SIZE); N(XEN_NETIF_CTRL_TYPE_SET_HASH_MAPPING);
    N(XEN_NETIF_CTRL_TYPE_SET_HASH_ALGORITHM); N(XEN_NETIF_CTRL_TYPE_GET_GREF_MAPPING_SIZE);
    N(XEN_NETIF_CTRL_TYPE_ADD_GREF_MAPPING); N(XEN_NETIF_CTRL_TYPE_DEL_GREF_MAPPING);
    N(XEN_NETIF_CTRL_STATUS_SUCCESS); N(XEN_NETIF_CTRL_STATUS_NOT_SUPPORTED);
    N(XEN_NETIF_CTRL_STATUS_INVALID_PARAMETER); N(XEN_NETIF_CTRL_STATUS_BUFFER_OVERFLOW);
    N(XEN_NETIF_CTRLF_GREF_readonly);
    N(XenbusStateUnknown); N(XenbusStateInitialising); N(XenbusStateInitWait);
    N(XenbusStateInitialised); N(XenbusStateConnected); N(XenbusStateClosing);
    N(XenbusStateClosed); N(XenbusStateReconfiguring); N(XenbusStateReconfigured);

    SLOT("tx_request", union netif_tx_sring_entry, struct netif_tx_request,
         { .gref = 0x01020304, .offset = 0x0506, .flags = 0x000d, .id = 0x0708, .size = 0x090a });
    SLOT("tx_response", union netif_tx_sring_entry, struct netif_tx_response,
         { .id = 0x0102, .status = -2 });
    SLOT("rx_request", union netif_rx_sring_entry, struct netif_rx_request,
         { .id = 0x0102, .gref = 0x03040506 });
    SLOT("rx_response", union netif_rx_sring_entry, struct netif_rx_response,
         { .id = 0x0102, .offset = 0x0304, .flags = 0x001b, .status = -1 });
    SLOT("ctrl_request", union xen_netif_ctrl_sring_entry, struct xen_netif_ctrl_request,
         { .id = 0x0102, .type = 9, .data = { 0x03040506, 0x0708090a, 0x0b0c0d0e } });
    SLOT("ctrl_response", union xen_netif_ctrl_sring_entry, struct xen_netif_ctrl_response,
         { .id = 0x0102, .type = 10, .status = 2, .data = 0x03040506 });
    SLOT("gref", struct xen_netif_gref, struct xen_netif_gref,
         { .ref = 0x01020304, .flags = 1, .status = 2 });
    SLOT("extra_gso", struct netif_extra_info, struct netif_extra_info,
         { .type = 1, .flags = 1, .u.gso = { .size = 0x0102, .type = 2, .features = 0x0304 } });
    SLOT("extra_mcast_add", struct netif_extra_info, struct netif_extra_info,
         { .type = 2, .flags = 0, .u.mcast.addr = { 1, 2, 3, 4, 5, 6 } });
    SLOT("extra_mcast_del", struct netif_extra_info, struct netif_extra_info,
         { .type = 3, .flags = 1, .u.mcast.addr = { 1, 2, 3, 4, 5, 6 } });
    SLOT("extra_hash", struct netif_extra_info, struct netif_extra_info,
         { .type = 4, .flags = 0,
           .u.hash = { .type = 3, .algorithm = 1, .value = { 4, 3, 2, 1 } } });
    return 0;
}
"#;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("netif-header-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the values that the C compiler computes from the header, by name; None without the
/// header.
fn compiled() -> Option<BTreeMap<String, String>> {
    if !met(&[Need::File(HEADER, "package libxen-dev"), Need::Program("cc", "gcc")]) {
        return None;
    }
    let scratch = Scratch::new();
    let source = scratch.0.join("netif.c");
    let program = scratch.0.join("netif");
    std::fs::write(&source, PROGRAM).expect("the C program is written");
    let built = Command::new("cc")
        .args(["-std=gnu11", "-Werror=implicit-function-declaration", "-o"])
        .args([&program, &source])
        .output()
        .expect("cc runs");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    let output = Command::new(&program).output().expect("the C program runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("ASCII");
    // A name may hold spaces; what follows it never does but in the fields.
    let split = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let values = match words.as_slice() {
            [name, _, _] if name.contains('.') => 2,
            _ => 1,
        };
        let (name, value) = words.split_at(words.len() - values);
        (name.join(" "), value.join(" "))
    };
    Some(text.lines().map(split).collect())
}

fn hex(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Our side of every line but the fields'.
fn ours() -> Vec<(&'static str, i64)> {
    let mut lines = vec![
        ("sizeof(struct netif_tx_request)", 12),
        ("sizeof(struct netif_tx_response)", 4),
        ("sizeof(struct netif_rx_request)", RX_SLOT_BYTES as i64),
        ("sizeof(struct netif_rx_response)", RX_SLOT_BYTES as i64),
        ("sizeof(struct netif_extra_info)", EXTRA_BYTES as i64),
        ("sizeof(struct xen_netif_gref)", ctrl::GREF_ENTRY_BYTES as i64),
        ("sizeof(struct xen_netif_ctrl_request)", 16),
        ("sizeof(struct xen_netif_ctrl_response)", 12),
        ("sizeof(union netif_tx_sring_entry)", TX_SLOT_BYTES as i64),
        ("sizeof(union netif_rx_sring_entry)", RX_SLOT_BYTES as i64),
        ("sizeof(union xen_netif_ctrl_sring_entry)", ctrl::CTRL_SLOT_BYTES as i64),
        ("__CONST_RING_SIZE(netif_tx, 4096)", TX_RING_ENTRIES as i64),
        ("__CONST_RING_SIZE(netif_rx, 4096)", RX_RING_ENTRIES as i64),
        ("__CONST_RING_SIZE(xen_netif_ctrl, 4096)", ctrl::CTRL_RING_ENTRIES as i64),
        ("offsetof(struct netif_tx_sring, ring)", RING_HEADER_BYTES as i64),
        ("offsetof(struct netif_rx_sring, ring)", RING_HEADER_BYTES as i64),
        ("offsetof(struct xen_netif_ctrl_sring, ring)", RING_HEADER_BYTES as i64),
        ("XEN_NETIF_NR_SLOTS_MIN", SLOTS_SENT as i64),
        ("XEN_NETIF_MAX_TX_SIZE", i64::from(u16::MAX)),
        ("NETTXF_csum_blank", TxFlags::CSUM_BLANK.bits().into()),
        ("NETTXF_data_validated", TxFlags::DATA_VALIDATED.bits().into()),
        ("NETTXF_more_data", TxFlags::MORE_DATA.bits().into()),
        ("NETTXF_extra_info", TxFlags::EXTRA_INFO.bits().into()),
        ("NETRXF_data_validated", RxFlags::DATA_VALIDATED.bits().into()),
        ("NETRXF_csum_blank", RxFlags::CSUM_BLANK.bits().into()),
        ("NETRXF_more_data", RxFlags::MORE_DATA.bits().into()),
        ("NETRXF_extra_info", RxFlags::EXTRA_INFO.bits().into()),
        ("NETRXF_gso_prefix", RxFlags::GSO_PREFIX.bits().into()),
        ("NETIF_RSP_OKAY", tx::status::OKAY.into()),
        ("NETIF_RSP_ERROR", tx::status::ERROR.into()),
        ("NETIF_RSP_DROPPED", tx::status::DROPPED.into()),
        ("NETIF_RSP_NULL", tx::status::NULL.into()),
        ("XEN_NETIF_EXTRA_TYPE_GSO", extra::kind::GSO.into()),
        ("XEN_NETIF_EXTRA_TYPE_MCAST_ADD", extra::kind::MCAST_ADD.into()),
        ("XEN_NETIF_EXTRA_TYPE_MCAST_DEL", extra::kind::MCAST_DEL.into()),
        ("XEN_NETIF_EXTRA_TYPE_HASH", extra::kind::HASH.into()),
        ("XEN_NETIF_EXTRA_FLAG_MORE", extra::FLAG_MORE.into()),
        ("XEN_NETIF_GSO_TYPE_TCPV4", extra::GSO_TCPV4.into()),
        ("XEN_NETIF_GSO_TYPE_TCPV6", extra::GSO_TCPV6.into()),
        ("XEN_NETIF_CTRL_HASH_TYPE_IPV4", HashTypes::IPV4.bits().into()),
        ("XEN_NETIF_CTRL_HASH_TYPE_IPV4_TCP", HashTypes::IPV4_TCP.bits().into()),
        ("XEN_NETIF_CTRL_HASH_TYPE_IPV6", HashTypes::IPV6.bits().into()),
        ("XEN_NETIF_CTRL_HASH_TYPE_IPV6_TCP", HashTypes::IPV6_TCP.bits().into()),
        // What the hash extra carries is the number of the bit.
        ("_XEN_NETIF_CTRL_HASH_TYPE_IPV6_TCP", HashTypes::IPV6_TCP.bits().ilog2().into()),
        ("XEN_NETIF_CTRL_HASH_ALGORITHM_NONE", ctrl::algorithm::NONE.into()),
        ("XEN_NETIF_CTRL_HASH_ALGORITHM_TOEPLITZ", ctrl::algorithm::TOEPLITZ.into()),
        ("XEN_NETIF_CTRL_TYPE_INVALID", ctrl::kind::INVALID.into()),
        ("XEN_NETIF_CTRL_TYPE_GET_HASH_FLAGS", ctrl::kind::GET_HASH_FLAGS.into()),
        ("XEN_NETIF_CTRL_TYPE_SET_HASH_FLAGS", ctrl::kind::SET_HASH_FLAGS.into()),
        ("XEN_NETIF_CTRL_TYPE_SET_HASH_KEY", ctrl::kind::SET_HASH_KEY.into()),
        ("XEN_NETIF_CTRL_TYPE_GET_HASH_MAPPING_SIZE", ctrl::kind::GET_HASH_MAPPING_SIZE.into()),
        ("XEN_NETIF_CTRL_TYPE_SET_HASH_MAPPING_SIZE", ctrl::kind::SET_HASH_MAPPING_SIZE.into()),
        ("XEN_NETIF_CTRL_TYPE_SET_HASH_MAPPING", ctrl::kind::SET_HASH_MAPPING.into()),
        ("XEN_NETIF_CTRL_TYPE_SET_HASH_ALGORITHM", ctrl::kind::SET_HASH_ALGORITHM.into()),
        ("XEN_NETIF_CTRL_TYPE_GET_GREF_MAPPING_SIZE", ctrl::kind::GET_GREF_MAPPING_SIZE.into()),
        ("XEN_NETIF_CTRL_TYPE_ADD_GREF_MAPPING", ctrl::kind::ADD_GREF_MAPPING.into()),
        ("XEN_NETIF_CTRL_TYPE_DEL_GREF_MAPPING", ctrl::kind::DEL_GREF_MAPPING.into()),
        ("XEN_NETIF_CTRL_STATUS_SUCCESS", ctrl::Status::Success.to_u32().into()),
        ("XEN_NETIF_CTRL_STATUS_NOT_SUPPORTED", ctrl::Status::NotSupported.to_u32().into()),
        ("XEN_NETIF_CTRL_STATUS_INVALID_PARAMETER", ctrl::Status::InvalidParameter.to_u32().into()),
        ("XEN_NETIF_CTRL_STATUS_BUFFER_OVERFLOW", ctrl::Status::BufferOverflow.to_u32().into()),
        ("XEN_NETIF_CTRLF_GREF_readonly", GrefFlags::READONLY.bits().into()),
    ];
    let states = [
        "XenbusStateUnknown",
        "XenbusStateInitialising",
        "XenbusStateInitWait",
        "XenbusStateInitialised",
        "XenbusStateConnected",
        "XenbusStateClosing",
        "XenbusStateClosed",
        "XenbusStateReconfiguring",
        "XenbusStateReconfigured",
    ];
    let numbers = XenbusState::ALL.map(|state| state as i64);
    lines.extend(states.into_iter().zip(numbers));
    lines
}

/// Our side of the sample slots.
fn slots() -> Vec<(&'static str, String)> {
    let address = [1, 2, 3, 4, 5, 6];
    let gso = Gso { kind: GsoKind::Tcpv6, size: 0x0102 };
    let hash = Hash { kind: 3, algorithm: 1, value: 0x0102_0304 };
    vec![
        (
            "tx_request",
            hex(&TxRequest {
                gref: 0x0102_0304,
                offset: 0x0506,
                flags: TxFlags::CSUM_BLANK | TxFlags::MORE_DATA | TxFlags::EXTRA_INFO,
                id: 0x0708,
                size: 0x090a,
            }
            .to_words()),
        ),
        ("tx_response", hex(&TxResponse { id: 0x0102, status: tx::status::DROPPED }.to_words())),
        ("rx_request", hex(&RxRequest { id: 0x0102, gref: 0x0304_0506 }.to_words())),
        (
            "rx_response",
            hex(&RxResponse {
                id: 0x0102,
                offset: 0x0304,
                flags: rx::RxFlags::all() - RxFlags::MORE_DATA,
                status: tx::status::ERROR,
            }
            .to_words()),
        ),
        (
            "ctrl_request",
            hex(&CtrlRequest {
                id: 0x0102,
                kind: ctrl::kind::ADD_GREF_MAPPING,
                data: [0x0304_0506, 0x0708_090a, 0x0b0c_0d0e],
            }
            .to_words()),
        ),
        (
            "ctrl_response",
            hex(&CtrlResponse {
                id: 0x0102,
                kind: ctrl::kind::DEL_GREF_MAPPING,
                status: ctrl::Status::InvalidParameter.to_u32(),
                data: 0x0304_0506,
            }
            .to_words()),
        ),
        (
            "gref",
            hex(&GrefEntry {
                gref: 0x0102_0304,
                flags: GrefFlags::READONLY,
                status: ctrl::Status::InvalidParameter.to_u16(),
            }
            .to_words()),
        ),
        ("extra_gso", hex(&Extra::Gso(gso.try_into().unwrap(), 0x0304).to_rx_words(true))),
        ("extra_mcast_add", hex(&Extra::McastAdd(address).to_rx_words(false))),
        ("extra_mcast_del", hex(&Extra::McastDel(address).to_rx_words(true))),
        ("extra_hash", hex(&Extra::Hash(hash).to_rx_words(false))),
    ]
}

/// Offset and size in bytes of each field that a codec touches.
const FIELDS: [(&str, &str); 32] = [
    ("netif_tx_request.gref", "0 4"),
    ("netif_tx_request.offset", "4 2"),
    ("netif_tx_request.flags", "6 2"),
    ("netif_tx_request.id", "8 2"),
    ("netif_tx_request.size", "10 2"),
    ("netif_tx_response.id", "0 2"),
    ("netif_tx_response.status", "2 2"),
    ("netif_rx_request.id", "0 2"),
    ("netif_rx_request.gref", "4 4"),
    ("netif_rx_response.id", "0 2"),
    ("netif_rx_response.offset", "2 2"),
    ("netif_rx_response.flags", "4 2"),
    ("netif_rx_response.status", "6 2"),
    ("xen_netif_ctrl_request.id", "0 2"),
    ("xen_netif_ctrl_request.type", "2 2"),
    ("xen_netif_ctrl_request.data", "4 12"),
    ("xen_netif_ctrl_response.id", "0 2"),
    ("xen_netif_ctrl_response.type", "2 2"),
    ("xen_netif_ctrl_response.status", "4 4"),
    ("xen_netif_ctrl_response.data", "8 4"),
    ("xen_netif_gref.ref", "0 4"),
    ("xen_netif_gref.flags", "4 2"),
    ("xen_netif_gref.status", "6 2"),
    ("netif_extra_info.type", "0 1"),
    ("netif_extra_info.flags", "1 1"),
    ("netif_extra_info.u.gso.size", "2 2"),
    ("netif_extra_info.u.gso.type", "4 1"),
    ("netif_extra_info.u.gso.features", "6 2"),
    ("netif_extra_info.u.mcast.addr", "2 6"),
    ("netif_extra_info.u.hash.type", "2 1"),
    ("netif_extra_info.u.hash.algorithm", "3 1"),
    ("netif_extra_info.u.hash.value", "4 4"),
];

#[test]
fn constants_and_slots_are_the_headers() {
    let Some(mut theirs) = compiled() else { return };
    let numbers = ours().into_iter().map(|(name, number)| (name, number.to_string()));
    let fields = FIELDS.into_iter().map(|(name, place)| (name, place.to_owned()));
    for (name, value) in numbers.chain(fields).chain(slots()) {
        assert_eq!(theirs.remove(name), Some(value), "{name}");
    }
    assert!(theirs.is_empty(), "printed and not compared: {theirs:?}");
}
