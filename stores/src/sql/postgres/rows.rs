//! Between the port's types and columns.

pub(super) use super::super::columns::{EntityRow, Found, GIVEN_BYTES, pending, pending_entries, stored};
