// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile peers, which make the handshake frame by frame and then break rules, and the listeners
//! and sessions that they attack.
//!
//! ```text
//! channel         Foe: writes any word of its region, any record, any byte of the socket
//! home            Home: a listener that remembers why it refused a peer
//! on_socket       Attack: breaks one rule of the handshake, of a socket or of a control socket
//! session         SessionFoe: writes any record of a session, over shared memory or a socket
//! session_home    SessionHome: the end of a session that a SessionFoe attacks
//! ```

pub mod channel;
pub mod home;
pub mod on_socket;
pub mod session;
pub mod session_home;

pub use channel::{Foe, Wire};
pub use home::Home;
pub use on_socket::Attack;
pub use session::{Role, SessionFoe};
pub use session_home::SessionHome;
