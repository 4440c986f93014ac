//! A folder that looks like a system.

use crate::doctor::roots::Roots;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

/// A system, made of files.
pub struct Tree(tempfile::TempDir);

impl Tree {
    /// Makes an empty system.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns dom0 of a machine on which all is as it should be.
    pub fn dom0() -> Self {
        Self::new()
            .with("sys/hypervisor/type", "xen\n")
            .with("sys/hypervisor/guest_type", "PV\n")
            .with("sys/hypervisor/version/major", "4\n")
            .with("sys/hypervisor/version/minor", "17\n")
            .with("proc/xen/capabilities", "control_d\n")
            .with("proc/sys/kernel/osrelease", "6.1.0-1-amd64\n")
            .with("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n")
            .with("proc/sys/vm/max_map_count", "65530\n")
            .with("sys/module/xen_gntalloc/parameters/limit", "1024\n")
            .with("dev/xen/gntdev", "")
            .with("dev/xen/gntalloc", "")
            .with("dev/xen/evtchn", "")
            .with("dev/net/tun", "")
            .with("usr/lib/modprobe.d/grantway.conf", "# no\nblacklist xen-netback\n")
            .with("run/udev/control", "")
    }

    /// Adds a file.
    pub fn with(self, path: &str, text: &str) -> Self {
        let path = self.made(path);
        fs::write(path, text).unwrap();
        self
    }

    /// Adds a symbolic link.
    pub fn linked(self, path: &str, target: &str) -> Self {
        symlink(target, self.made(path)).unwrap();
        self
    }

    /// Adds a program.
    pub fn program(self, name: &str, script: &str) -> Self {
        let source = format!("scripts/{name}");
        let tree = self.with(&source, &format!("#!/bin/sh\n{script}\n"));
        let source = tree.path(&source);
        fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
        grantway_testkit::copy_program(&source, &tree.made(&format!("bin/{name}")));
        tree
    }

    /// Adds an interface.
    pub fn interface(self, name: &str, mtu: u32, files: &[(&str, &str)]) -> Self {
        let net = format!("sys/class/net/{name}");
        let tree = self.with(&format!("{net}/mtu"), &mtu.to_string());
        let tree = tree.with(&format!("{net}/flags"), "0x1003\n");
        files.iter().fold(tree, |tree, (file, text)| tree.with(&format!("{net}/{file}"), text))
    }

    /// Removes a file.
    pub fn without(self, path: &str) -> Self {
        fs::remove_file(self.path(path)).unwrap();
        self
    }

    /// Returns the roots that look at this tree.
    pub fn roots(&self) -> Roots {
        Roots::under(self.0.path())
    }

    /// Returns the full path of `path` in the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn made(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}
