// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of channels between peers that keep the rules: messages, waiting, event loops, handshakes,
//! and invalid input.

mod any_order_of_calls;
mod bad_input;
mod begin_on_socket;
mod event_loop;
mod handshake_rules;
mod long_spin_budget;
mod many_messages;
mod messages_arrive;
mod owned_reservations;
mod parking;
mod shared_sender;
mod socket_transport;
mod stopped_peer;
mod typed_messages;
mod views;
mod waiting_sender;
