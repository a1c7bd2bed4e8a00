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

/// The kind of handle that a C program has for reservations; see [`Object`].
pub(crate) struct ReservationObject;

static RESERVATIONS: Table<ReservationObject> = Table::new();

impl Object for ReservationObject {
    // Empty only while a call commits the reservation.
    type First = Option<OwnedReservation>;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 4;
    const NAME: &'static str = "partywall_reservation";

    fn table() -> &'static Table<Self> {
        &RESERVATIONS
    }
}

/// Makes a handle of a reservation, and writes it and where the reserved bytes lie.
pub(crate) fn give(
    mut reserved: OwnedReservation,
    data: Out<*mut c_void>,
    place: Out<Handle<ReservationObject>>,
) -> Result<(), Failure> {
    // The memory does not move with its owner: it lies in shared memory or on the heap.
    let memory = reserved.as_mut_ptr();
    place.write(Handle::insert(Some(reserved), ())?);
    data.write(memory.cast());
    Ok(())
}

/// Commits a reservation by `send`, which gives it back if it was not used up. The handle is freed
/// unless the message could still be sent, or the call was wrong. A caller that learns that its
/// peer is gone need not abort, so its reservation must not stay.
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
    // Another thread may have freed the handle meanwhile: it had no reservation any more.
    let _ = handle.discard();
    result
}

/// Statuses of a commit after which the reservation stays the caller's, as the header says.
const KEEP: [i32; 4] = [FULL, FOREIGN_RESERVATION, FINISHED_HERE, ARGUMENT];

export! {
    /// Writes where the reserved bytes lie.
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

    /// Shortens the message to `len` bytes, if it is longer.
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
