//! TLS is demanded of servers on other machines alone. To test that on one machine takes an address of it that looks like another's.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// The address by which other machines reach this one: to a client that does not compare it with its own, a server there is another
/// machine's. `None`, said aloud, where there is none but loopback.
#[must_use]
pub fn own_address() -> Option<Ipv4Addr> {
    // Nothing is sent to that address, which is for documentation: the system chooses the one that it would be sent from.
    let chosen = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9))?;
        socket.local_addr()
    });
    if let Ok(SocketAddr::V4(address)) = chosen
        && !address.ip().is_loopback()
        && !address.ip().is_unspecified()
    {
        return Some(*address.ip());
    }
    eprintln!(
        "SKIPPED: this machine has no address but loopback, so no server can be another machine's: give it a network"
    );
    None
}
