//! Checks of every number and layout of `uapi` against the system's headers. A C program prints the
//! values of the headers.

use grantway_hypervisor::GrantStatus;
use grantway_needs::{Need, met};
use grantway_xen::uapi::{self, *};
use std::collections::BTreeMap;
use std::io::Write;
use std::mem::offset_of;
use std::process::{Command, Stdio};

const HEADERS: [&str; 3] = ["gntdev", "gntalloc", "evtchn"];
const COMPILER: Need<'_> = Need::Program("cc", "gcc");

/// Returns our values, by the C expressions of the headers' values.
fn ours() -> BTreeMap<&'static str, i64> {
    // Sizes of structures and offsets of fields.
    macro_rules! layouts {
        ($($c:literal $rust:ident: $($field:ident = $name:ident)*;)*) => {
            [$((concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as i64),
               $((concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
                  offset_of!($rust, $name) as i64),)*)*]
        };
    }
    // Numbers of requests, and a flag.
    let numbers = [
        ("IOCTL_GNTDEV_MAP_GRANT_REF", MAP_GRANT_REF as i64),
        ("IOCTL_GNTDEV_UNMAP_GRANT_REF", UNMAP_GRANT_REF as i64),
        ("IOCTL_GNTDEV_GRANT_COPY", GRANT_COPY as i64),
        ("IOCTL_GNTALLOC_ALLOC_GREF", ALLOC_GREF as i64),
        ("IOCTL_GNTALLOC_DEALLOC_GREF", DEALLOC_GREF as i64),
        ("GNTALLOC_FLAG_WRITABLE", i64::from(ALLOC_WRITABLE)),
        ("IOCTL_EVTCHN_BIND_INTERDOMAIN", BIND_INTERDOMAIN as i64),
        ("IOCTL_EVTCHN_BIND_UNBOUND_PORT", BIND_UNBOUND_PORT as i64),
        ("IOCTL_EVTCHN_UNBIND", UNBIND as i64),
        ("IOCTL_EVTCHN_NOTIFY", NOTIFY as i64),
        ("IOCTL_EVTCHN_RESET", RESET as i64),
    ];
    let layouts = layouts! {
        "ioctl_gntdev_grant_ref" GrantRefOf: domid = domid ref = gref;
        "ioctl_gntdev_map_grant_ref" MapGrantRef: count = count index = index refs = refs;
        "ioctl_gntdev_unmap_grant_ref" UnmapGrantRef: index = index count = count;
        "gntdev_grant_copy_segment" CopySegment:
            source = source dest = dest len = len flags = flags status = status;
        "ioctl_gntdev_grant_copy" GrantCopy: count = count segments = segments;
        "ioctl_gntalloc_alloc_gref" AllocGref:
            domid = domid flags = flags count = count index = index gref_ids = grefs;
        "ioctl_gntalloc_dealloc_gref" DeallocGref: index = index count = count;
        "ioctl_evtchn_bind_interdomain" BindInterdomain:
            remote_domain = remote_domain remote_port = remote_port;
        "ioctl_evtchn_bind_unbound_port" BindUnboundPort: remote_domain = remote_domain;
        "ioctl_evtchn_unbind" PortOf: port = port;
        "ioctl_evtchn_notify" PortOf: port = port;
    };
    numbers.into_iter().chain(layouts).collect()
}

/// Returns our values that only Xen's own headers have.
fn ours_of_xen() -> BTreeMap<&'static str, i64> {
    [
        ("GNTCOPY_source_gref", i64::from(COPY_SOURCE_GREF)),
        ("GNTCOPY_dest_gref", i64::from(COPY_DEST_GREF)),
        ("GNTST_okay", i64::from(GrantStatus::OKAY.0)),
        ("GNTST_general_error", i64::from(GrantStatus::GENERAL_ERROR.0)),
        ("GNTST_bad_domain", i64::from(GrantStatus::BAD_DOMAIN.0)),
        ("GNTST_bad_gntref", i64::from(GrantStatus::BAD_GNTREF.0)),
        ("GNTST_bad_virt_addr", i64::from(GrantStatus::BAD_VIRT_ADDR.0)),
        ("GNTST_permission_denied", i64::from(GrantStatus::PERMISSION_DENIED.0)),
        ("GNTST_bad_page", i64::from(GrantStatus::BAD_PAGE.0)),
        ("GNTST_bad_copy_arg", i64::from(GrantStatus::BAD_COPY_ARG.0)),
        ("GNTST_eagain", i64::from(GrantStatus::EAGAIN.0)),
    ]
    .into()
}

/// Compiles and runs a C program. Returns its output.
fn run_c(program: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let exe = dir.path().join("facts");
    let mut cc = Command::new("cc")
        .args(["-x", "c", "-w", "-o"])
        .arg(&exe)
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    cc.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    assert!(cc.wait().unwrap().success(), "the headers do not compile:\n{program}");
    let output = Command::new(exe).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn compare(includes: &str, ours: &BTreeMap<&'static str, i64>, body: &str) {
    let prints: String = ours
        .keys()
        .map(|e| format!("printf(\"%s=%lld\\n\", \"{e}\", (long long)({e}));\n"))
        .collect();
    let program = format!(
        "#include <stdint.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n\
         #include <sys/ioctl.h>\n{includes}\nint main(void) {{\n{prints}{body}\nreturn 0;\n}}\n"
    );
    let output = run_c(&program);
    let mut theirs = BTreeMap::new();
    for line in output.lines() {
        let (name, value) = line.split_once('=').unwrap();
        theirs.insert(name.to_owned(), value.to_owned());
    }
    for (name, value) in ours {
        assert_eq!(theirs.remove(*name), Some(value.to_string()), "{name}");
    }
    for (name, value) in theirs {
        assert_eq!(value, bytes_of(&name), "{name}");
    }
}

/// Returns our bytes of a copy end, which the C program filled in under this name.
fn bytes_of(name: &str) -> String {
    let (foreign, local) = (uapi::CopyEnd::foreign(0x0403_0201, 0x0605, 0x0807), 0x1122_3344);
    let end = match name {
        "foreign" => foreign,
        "local" => uapi::CopyEnd::local(local),
        other => panic!("{other}"),
    };
    // A copy end is 8 bytes. Debug shows them as a number.
    let shown = format!("{end:?}");
    let number = shown.trim_start_matches("CopyEnd(").trim_end_matches(')');
    number.parse::<u64>().unwrap().to_string()
}

#[test]
fn numbers_and_layouts_are_those_of_linux() {
    let files = HEADERS.map(|name| format!("/usr/include/xen/{name}.h"));
    let needs: Vec<_> =
        files.iter().map(|file| Need::File(file, "package linux-libc-dev")).collect();
    if !met(&needs) || !met(&[COMPILER]) {
        return;
    }
    let headers: String = HEADERS.map(|name| format!("#include <xen/{name}.h>\n")).concat();
    let types = "typedef uint32_t grant_ref_t;\ntypedef uint16_t domid_t;\n";
    let body = "struct gntdev_grant_copy_segment s; uint64_t end;\n\
        memset(&s, 0, sizeof s);\n\
        s.source.foreign.ref = 0x04030201; s.source.foreign.offset = 0x0605;\n\
        s.source.foreign.domid = 0x0807;\n\
        memcpy(&end, &s.source, 8); printf(\"foreign=%llu\\n\", (unsigned long long)end);\n\
        s.dest.virt = (void *)(uintptr_t)0x11223344;\n\
        memcpy(&end, &s.dest, 8); printf(\"local=%llu\\n\", (unsigned long long)end);\n";
    compare(&format!("{types}{headers}"), &ours(), body);
}

#[test]
fn statuses_and_flags_are_those_of_xen() {
    let header = Need::File("/usr/include/xen/grant_table.h", "package libxen-dev");
    if !met(&[header, COMPILER]) {
        return;
    }
    compare("#include <xen/xen.h>\n#include <xen/grant_table.h>\n", &ours_of_xen(), "");
}
