//! The methods of all outboxes by which a message is stored, in an `impl` of theirs.

macro_rules! storing {
    ($options:ident, $connection:ty) => {
        /// For more control: addresses, codec, limits. Nothing is migrated unless it is asked for.
        pub fn options() -> $options {
            $options::new()
        }

        /// Stores `message` in the transaction of `tx`, addressed by its type
        #[doc = concat!("([`", stringify!($options), "::route`]).")]
        /// It is sent once that is committed, and never if it is not.
        ///
        /// # Errors
        /// [`EnqueueError`].
        pub async fn enqueue<M: hapax_core::Message>(
            &self,
            tx: &mut $connection,
            message: &M,
        ) -> Result<hapax_core::relay::Ticket, EnqueueError> {
            let outgoing = self.0.writes.outgoing(message)?;
            self.enqueue_all(tx, &[outgoing]).await
        }

        /// The same, to one endpoint.
        ///
        /// # Errors
        /// [`EnqueueError`].
        pub async fn enqueue_to<M: hapax_core::Message>(
            &self,
            tx: &mut $connection,
            endpoint: &str,
            message: &M,
        ) -> Result<hapax_core::relay::Ticket, EnqueueError> {
            let outgoing = self.0.writes.outgoing_to(endpoint, message)?;
            self.enqueue_all(tx, &[outgoing]).await
        }

        /// `message` as [`enqueue`](Self::enqueue) would store it, to change its address, keys, headers and times before
        /// [`enqueue_all`](Self::enqueue_all). With a due time it waits in the table until then.
        ///
        /// # Errors
        /// [`EnqueueError::Refused`].
        pub fn outgoing<M: hapax_core::Message>(
            &self,
            message: &M,
        ) -> Result<hapax_core::envelope::Outgoing, EnqueueError> {
            self.0.writes.outgoing(message)
        }

        /// Messages that have failed, those that failed first before others. They stay until a person decides:
        /// [`retry`](Self::retry) or [`discard`](Self::discard).
        ///
        /// # Errors
        /// [`StoreError`](hapax_core::ports::StoreError) when the database cannot be read.
        pub async fn failed(
            &self,
            page: &hapax_core::ports::Page,
        ) -> Result<Vec<FailedMessage>, hapax_core::ports::StoreError> {
            care::failed(&self.0, page).await
        }

        fn line(&self) -> Option<std::sync::Arc<hapax_core::relay::PushLine>> {
            self.0.line.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
        }
    };
}
pub(in crate::sql) use storing;
