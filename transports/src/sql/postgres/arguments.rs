//! The driver's binding may fail by its signature, and cannot for what is bound here. That is said once and not at each call.

use sqlx::{Arguments, Encode, Postgres, Type, postgres::PgArguments};

/// Binding that cannot fail, in a chain.
pub(super) trait Bind {
    fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, value: T) -> &mut Self;
}

impl Bind for PgArguments {
    fn bind<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, value: T) -> &mut Self {
        self.add(value).expect("numbers, text and bytes of less than a gigabyte are bound as they are");
        self
    }
}

pub(super) fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
