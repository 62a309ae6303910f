//! The driver's binding may fail by its signature, and cannot for what is bound here. That is said once and not at each call.

use sqlx::{Arguments, Encode, Sqlite, Type, sqlite::SqliteArguments};

/// Binding that cannot fail, in a chain.
pub(super) trait Bind {
    fn bind<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self;

    fn bind_nulls(&mut self, count: usize) {
        for _ in 0..count {
            self.bind(None::<i64>);
        }
    }
}

impl Bind for SqliteArguments {
    fn bind<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        self.add(value).expect("numbers, text and bytes are bound as they are");
        self
    }
}
