//! What the queues on a server have in common, whichever server that is.

pub(super) mod signals;

#[cfg(test)]
mod tests;
