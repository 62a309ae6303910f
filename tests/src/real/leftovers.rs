//! What stays in a service is paid for. So what a test has made there is removed when its thread ends, however that ends, or people are told.

use std::{cell::RefCell, future::Future, pin::Pin};

use super::aws::apart;

type Removing = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
type Remove = Box<dyn FnOnce() -> Removing + Send>;

thread_local! {
    /// A test has a thread of its own, and so ends what it has made. What is killed leaves it.
    static LEFT: Leftovers = const { Leftovers(RefCell::new(Vec::new())) };
}

struct Leftovers(RefCell<Vec<(String, Remove)>>);

/// Has `remove` run when this thread ends, also when the test on it has failed. If it cannot, people are told `what` stays.
pub fn remove_later<F>(what: impl Into<String>, remove: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let remove: Remove = Box::new(|| Box::pin(remove()));
    LEFT.with(|left| left.0.borrow_mut().push((what.into(), remove)));
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // Nobody reads what a thread says that is ending, but for standard error as it is.
        for (what, remove) in self.0.take() {
            if let Err(why) = apart(async move { remove().await }) {
                eprintln!("{what} stays, remove it yourself: {why}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_a_thread_has_made_is_removed_when_it_ends_also_by_a_panic() {
        let (removed, seen) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            for name in ["one", "two"] {
                let removed = removed.clone();
                remove_later(name, move || async move { removed.send(name).map_err(|e| e.to_string()) });
            }
            assert!(removed.send("made").is_err(), "a test that fails");
        });
        assert!(thread.join().is_err());
        assert_eq!(seen.iter().collect::<Vec<_>>(), ["made", "one", "two"]);
    }
}
