//! Panics of handlers and sentences belong into the story. The hook would print each of the hundreds of runs before it.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    sync::Once,
};

/// Different panics that are remembered at most: a text may have a number in it that is new at each run.
const PANICS_MAX: usize = 64;

/// Where each text was panicked with.
type Panics = BTreeMap<String, String>;

thread_local! {
    /// What was panicked with in the check that this thread is in; `None`: it is in none.
    static PANICS: RefCell<Option<Panics>> = const { RefCell::new(None) };
}

/// While it lives, panics on this thread are kept and not printed.
#[derive(Debug)]
pub(super) struct Hush(Option<Panics>);

pub(super) fn hush() -> Hush {
    static HOOKED: Once = Once::new();
    // A hook cannot be changed while the thread panics; then it is said aloud this once.
    if !std::thread::panicking() {
        HOOKED.call_once(|| {
            let aloud = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !keep(info) {
                    aloud(info);
                }
            }));
        });
    }
    Hush(PANICS.replace(Some(Panics::new())))
}

impl Hush {
    /// Where the panics were that `told` has in it.
    // Of a `Hush`: without one there is nothing to ask.
    pub(super) fn places(&self, told: &[String]) -> Vec<String> {
        PANICS.with_borrow(|panics| {
            let told = |text: &&String| told.iter().any(|line| line.contains(text.as_str()));
            let panics = panics.iter().flatten().filter(|(text, _)| told(text));
            panics.map(|(text, place)| format!("`{text}` was at {place}")).collect()
        })
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        PANICS.set(self.0.take());
    }
}

/// Keeps a panic, if there is a check to tell it.
fn keep(info: &PanicHookInfo<'_>) -> bool {
    let keep = |panics: &RefCell<Option<Panics>>| {
        let Ok(mut panics) = panics.try_borrow_mut() else { return false };
        let Some(panics) = &mut *panics else { return false };
        if let (Some(text), Some(place)) = (info.payload_as_str(), info.location())
            && panics.len() < PANICS_MAX
        {
            panics.entry(text.to_owned()).or_insert_with(|| place.to_string());
        }
        true
    };
    PANICS.try_with(keep).unwrap_or(false)
}

/// The answer of `explore`. A panic that comes from within it is an error like others: a handler's own are told by the
/// manager, so what comes here is from code of the user's that nobody expects to panic, or is a mistake of the explorer's.
pub(super) fn told<R>(explore: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(explore)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("{PANICKED} panicked: {}", text.unwrap_or("without a text")))
    })
}

/// Begins what [`told`] says.
pub(super) const PANICKED: &str = "something outside of the handlers";
