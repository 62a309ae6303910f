//! Dead letters that fail.

use async_trait::async_trait;
use hapax_core::{
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, Page, StoreError},
};

use super::{Faulty, WRITE, refused, unknown};
use crate::{Call, Fault, Side, World};

#[async_trait]
impl<P: DeadLetters + 'static> DeadLetters for Faulty<P> {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        const ADDING: &str = "setting a message aside";
        self.world.point(Call::SetAside, Side::Before).await;
        let fate = self.world.fate(Call::SetAside, WRITE).await;
        match fate {
            Some(Fault::Refused) => return Err(refused(ADDING)),
            Some(Fault::UnknownNotApplied) => return Err(unknown(ADDING)),
            Some(Fault::Late) => {
                let (inner, world, letter) = (self.inner.clone(), self.world.clone(), letter.clone());
                self.world.delay(Box::pin(async move { drop(add(&*inner, &world, &letter).await) }));
                return Err(unknown(ADDING));
            }
            _ => add(&*self.inner, &self.world, letter).await?,
        }
        self.world.silence(Call::SetAside, fate).await;
        self.world.point(Call::SetAside, Side::After).await;
        if fate == Some(Fault::UnknownApplied) { Err(unknown(ADDING)) } else { Ok(()) }
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.world.point(Call::List, Side::Before).await;
        let letters = self.inner.list(endpoint, page).await?;
        self.world.point(Call::List, Side::After).await;
        Ok(letters)
    }

    /// A person's doing: nothing fails at it here.
    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.inner.discard(letters).await
    }
}

async fn add<P: DeadLetters + ?Sized>(inner: &P, world: &World, letter: &DeadLetter) -> Result<(), StoreError> {
    inner.add(letter).await?;
    world.ghost(|ghost| {
        ghost.set_aside(letter);
        Ok(())
    });
    Ok(())
}
