//! The vif, its stack, and the loop in which all is served.

use crate::services::Services;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::time::Duration;
use grantway_bare::{Bare, Boot, Clock, FrontendPlatform, FrontendStore, Shutdown, println};
use grantway_frontend::{Vif, VifError, VifStatus, Wishes};
use grantway_stack::smoltcp::socket::tcp::CongestionControl;
use grantway_stack::smoltcp::time::Instant;
use grantway_stack::{Lease, Stack, StackConfig};

/// Node by which the toolstack asks for an end.
const SHUTDOWN: &str = "control/shutdown";
/// Turns with frames between two looks at the store.
const TURNS_UNLOOKED: u32 = 64;
/// Time after which a vif that failed is tried again.
const REST: Duration = Duration::from_millis(500);

/// The guest.
pub struct Guest {
    platform: Arc<Bare>,
    clock: Clock,
    vif: Vif<Stack>,
    services: Services,
    /// The way by which the toolstack asks the guest to end, or to be saved.
    control: Box<dyn FrontendStore>,
    /// The state that was told last.
    told: Option<VifStatus>,
    /// The address by DHCP that was told last.
    leased: Option<Lease>,
}

impl Guest {
    /// Opens vif 0.
    pub fn open(
        platform: Arc<Bare>,
        boot: &Boot,
        config: &StackConfig,
        wishes: Wishes,
        congestion: CongestionControl,
    ) -> Result<Self, String> {
        let clock = platform.clock();
        let mut stack = Stack::new(config, instant(clock.now()));
        let services = Services::open(&mut stack, boot.memory(), congestion)?;
        let vif = Vif::open_with(platform.clone(), 0, wishes, stack).map_err(text)?;
        let mut control = platform.frontend_store().map_err(text)?;
        control.watch(SHUTDOWN, "shutdown").map_err(text)?;
        let mut guest = Self { platform, clock, vif, services, control, told: None, leased: None };
        guest.settle()?;
        Ok(guest)
    }

    /// Gives the stack the address and the MTU that the toolstack gave the vif.
    fn settle(&mut self) -> Result<(), String> {
        let vif = &mut self.vif;
        let (mac, mtu) = (vif.mac().map_err(text)?, vif.mtu().map_err(text)?);
        match station(&mac).is_some_and(|mac| vif.runner_mut().set_station(mac, mtu as usize)) {
            true => Ok(()),
            false => {
                Err(format!("the vif's mac is {mac:?}, expected one such as 00:16:3e:00:00:01"))
            }
        }
    }

    /// Serves until the toolstack has the guest end. Returns the kind of end.
    pub fn run(&mut self) -> Result<Shutdown, String> {
        let mut unlooked = TURNS_UNLOOKED;
        loop {
            let now = self.clock.now();
            if unlooked >= TURNS_UNLOOKED {
                unlooked = 0;
                if let Some(end) = self.obey()? {
                    return Ok(end);
                }
                self.look()?;
            }
            match self.turn(now) {
                Ok(true) => unlooked += 1,
                Ok(false) => {
                    unlooked = TURNS_UNLOOKED;
                    self.sleep(now)?;
                }
                Err(fault) => {
                    unlooked = TURNS_UNLOOKED;
                    self.vif.fail(fault).map_err(text)?;
                }
            }
        }
    }

    /// Takes frames in, serves sockets, and sends. Returns true if anything moved.
    fn turn(&mut self, now: Duration) -> Result<bool, VifError> {
        let staged = self.vif.staging().iter().map(|state| state.staged).sum();
        let stack = self.vif.runner_mut();
        let came = stack.receive(instant(now))?;
        let served = self.services.turn(stack, now, staged);
        Ok(stack.send(instant(now))? | came | served)
    }

    /// Does what the toolstack asks for. Returns the kind of end if the guest is to end.
    fn obey(&mut self) -> Result<Option<Shutdown>, String> {
        if self.control.next_event().map_err(text)?.is_none() {
            return Ok(None);
        }
        let asked = self.control.read_text(SHUTDOWN).map_err(text)?.unwrap_or_default();
        if !asked.is_empty() {
            // Xen's toolstack takes the empty node for an answer.
            self.control.write(SHUTDOWN, b"").map_err(text)?;
        }
        match asked.as_str() {
            "poweroff" | "halt" => Ok(Some(Shutdown::PowerOff)),
            "reboot" => Ok(Some(Shutdown::Reboot)),
            "suspend" => {
                if self.platform.suspend().map_err(text)? {
                    println!("grantway: restored");
                    self.told = None;
                    self.vif.resume(self.platform.clone()).map_err(text)?;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Takes in changes of the store, and answers of the control ring.
    fn look(&mut self) -> Result<(), String> {
        self.vif.take_answers().map_err(text)?;
        self.tell_lease();
        let status = self.vif.store_changed().map_err(text)?;
        if self.told != Some(status) {
            let policy = self.vif.features().policy;
            println!("grantway: {status:?} at {:?}, policy {policy}", self.clock.now());
            self.told = Some(status);
            if status == VifStatus::Connected
                && let Err(fault) = self.vif.runner_mut().announce()
            {
                self.vif.fail(fault).map_err(text)?;
            }
        }
        match status {
            VifStatus::Held => {
                if let Some(failure) = self.vif.take_failure() {
                    println!("grantway: {failure}; trying again");
                }
                // What is asked of the guest meanwhile is done after this rest.
                self.platform.pause(self.clock.now() + REST);
                self.vif.store_changed().map_err(text)?;
                self.vif.restart().map_err(text)
            }
            VifStatus::Replaced => match self.vif.renew() {
                Ok(()) => self.settle(),
                // It went again.
                Err(VifError::NoVif { .. }) => Ok(()),
                Err(e) => Err(text(e)),
            },
            VifStatus::Restored => self.vif.resume(self.platform.clone()).map_err(text),
            VifStatus::Connected | VifStatus::Waiting | VifStatus::Gone => Ok(()),
        }
    }

    /// Shows the address that a server gave, if it is another one.
    fn tell_lease(&mut self) {
        let lease = self.vif.runner().lease().copied();
        if lease != self.leased {
            match lease {
                Some(Lease { address, .. }) => println!("grantway: address {address} by DHCP"),
                None => println!("grantway: no address by DHCP any more"),
            }
            self.leased = lease;
        }
    }

    /// Sleeps until something comes, or has to be done.
    fn sleep(&mut self, now: Duration) -> Result<(), String> {
        let stack = self.vif.runner_mut();
        stack.take_events().map_err(text)?;
        // Answers to what is armed come by an event that ends the wait.
        match stack.arm() {
            Ok(false) if !self.vif.has_changes() => {}
            Ok(_) => return Ok(()),
            Err(fault) => return self.vif.fail(fault).map_err(text),
        }
        let delay = self.vif.runner_mut().poll_delay();
        self.platform.wait(delay.map(|delay| now + Duration::from(delay)));
        Ok(())
    }
}

/// Returns a time by smoltcp's clock.
pub fn instant(now: Duration) -> Instant {
    Instant::from_micros(now.as_micros() as i64)
}

/// Returns an Ethernet address, read from text.
fn station(text: &str) -> Option<[u8; 6]> {
    let mut parts = text.trim().split(':').map(|part| u8::from_str_radix(part, 16).ok());
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = parts.next()??;
    }
    parts.next().is_none().then_some(mac)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
