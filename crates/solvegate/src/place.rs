//! The place a gateway runs in: this machine and the address it listens on. No two living gateways share it, so a restarted one
//! counts once when limits are divided among gateways.

use std::{fs, net::SocketAddr};

use domain::id::Place;

/// Linux has the name of the machine here, also of a container's. Elsewhere every process counts for itself.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// Machines of one name may differ in this. Containers often have none.
const MACHINE_ID: &str = "/etc/machine-id";

/// The place of a gateway with this address; `None` when the system chooses the port.
pub fn of(listen: SocketAddr) -> Option<Place> {
    let host = fs::read_to_string(HOST_NAME).ok()?;
    let machine = fs::read_to_string(MACHINE_ID).unwrap_or_default();
    named(host.trim(), machine.trim(), listen)
}

fn named(host: &str, machine: &str, listen: SocketAddr) -> Option<Place> {
    (listen.port() != 0).then(|| Place::named(&format!("{machine}/{host}/{listen}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_after_a_restart_and_differs_by_machine_and_address() {
        let at = |text: &str| text.parse().unwrap();
        let here = named("a", "", at("127.0.0.1:8402"));
        assert!(here.is_some());
        assert_eq!(here, named("a", "", at("127.0.0.1:8402")));
        for other in [
            named("b", "", at("127.0.0.1:8402")),
            named("a", "7f", at("127.0.0.1:8402")),
            named("a", "", at("127.0.0.1:8403")),
        ] {
            assert_ne!(here, other);
        }
        assert_eq!(named("a", "", at("127.0.0.1:0")), None, "the port says nothing yet");
    }
}
