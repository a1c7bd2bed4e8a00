// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved memory for one message, which a C program fills before it is committed.
//!
//! ```text
//!   partywall_channel_reserve ─▶ reservation ── write ──┬─ partywall_channel_commit ─▶ sent
//!                                                       └─ partywall_reservation_abort ─▶ freed
//! ```

use crate::argument::Out;
use crate::export::export;
use crate::failure::{ARGUMENT, FINISHED_HERE, FOREIGN_RESERVATION, FULL, Failure};
use crate::table::{Handle, Object, Table};
use partywall::OwnedReservation;
use std::ffi::c_void;

pub(crate) struct ReservationObject;

static RESERVATIONS: Table<ReservationObject> = Table::new();

impl Object for ReservationObject {
    // The reservation. It is `None` only while a call commits it.
    type First = Option<OwnedReservation>;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 4;
    const NAME: &'static str = "partywall_reservation";

    fn table() -> &'static Table<Self> {
        &RESERVATIONS
    }
}

/// Makes a handle of a reservation. Writes the handle, and the address of the reserved bytes.
pub(crate) fn give(
    mut reserved: OwnedReservation,
    data: Out<*mut c_void>,
    place: Out<Handle<ReservationObject>>,
) -> Result<(), Failure> {
    // The reserved bytes lie in shared memory or on the heap, so their address stays the same when
    // the reservation is moved into its handle.
    let memory = reserved.as_mut_ptr();
    place.write(Handle::insert(Some(reserved), ())?);
    data.write(memory.cast());
    Ok(())
}

/// Sends the message in a reservation by `send`, which returns the reservation if the memory is
/// still reserved. The handle is freed, unless a later commit can succeed or the call had a wrong
/// argument. So a program that learns at a commit that its peer is gone need not abort the
/// reservation.
pub(crate) fn commit(
    handle: Handle<ReservationObject>,
    send: impl FnOnce(OwnedReservation) -> Result<(), (Option<OwnedReservation>, Failure)>,
) -> Result<(), Failure> {
    let mut place = handle.first()?;
    let reservation = place.take().ok_or_else(|| Failure::handle(ReservationObject::NAME))?;
    let result = match send(reservation) {
        Ok(()) => Ok(()),
        Err((Some(back), failure)) if KEEP.contains(&failure.code()) => {
            *place = Some(back);
            return Err(failure);
        }
        Err((_, failure)) => Err(failure),
    };
    drop(place);
    // The handle has no reservation any more. If another thread has freed the handle meanwhile, the
    // error of this call does no harm.
    let _ = handle.discard();
    result
}

/// Statuses of a failed commit after which the caller keeps the reservation, as the header says.
const KEEP: [i32; 4] = [FULL, FOREIGN_RESERVATION, FINISHED_HERE, ARGUMENT];

export! {
    /// Writes the address of the reserved bytes and their number.
    fn partywall_reservation_data(
        reservation: Handle<ReservationObject>, data: Out<*mut c_void>, len: Out<usize>,
    ) {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let mut reservation = reservation.first()?;
        let bytes = reservation.as_deref_mut().unwrap_or_default();
        data.write(bytes.as_mut_ptr().cast());
        len.write(bytes.len());
        Ok(())
    }

    /// Shortens the reserved message to `len` bytes, if it is longer.
    fn partywall_reservation_truncate(reservation: Handle<ReservationObject>, len: usize) {
        if let Some(reservation) = &mut *reservation.first()? {
            reservation.truncate(len);
        }
        Ok(())
    }

    /// Frees a reservation without sending the message. A null pointer is allowed.
    fn partywall_reservation_abort(reservation: Handle<ReservationObject>) {
        if !reservation.is_null() {
            reservation.discard()?;
        }
        Ok(())
    }
}
