//! An object store that does what a test asks for, and tells what it was asked.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use tokio::time::Instant;

/// What it does that a store must not do, or what happens on the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Way {
    #[default]
    Honest,
    /// A create overwrites.
    Overwrites,
    /// A create is refused and its content is written all the same.
    RefusesAndWrites,
    /// Creates are refused always.
    RefusesAll,
    /// Conditional creates are not supported.
    Unconditional,
    /// Who has looked for an object before it was there is told for two more looks that there is none.
    RemembersAbsence,
    /// An object is not in the first list after its creation.
    ListsLate,
    /// What is deleted stays.
    Keeps,
    /// Every other object is stamped by a clock that is so many milliseconds ahead.
    TwoClocks(i64),
    /// A create is refused as if there were an object, and there is none.
    ConflictsWithNothing,
    /// There is no bucket any more.
    NoBucket,
    /// Writes of entries are applied, and their answers are lost.
    AnswersLost,
    /// Nothing arrives.
    Unreachable,
    /// Everything hangs.
    Silent,
    /// Nothing is allowed.
    Denied,
    /// Deletes fail after half of them were done.
    DeletesHalf,
    /// Everything is served, and no answer comes but an error.
    Unanswered,
    /// Every other call waits for a moment, so that a future can be dropped there.
    Yields,
    /// It takes so long to look at an object, and to delete one.
    Slow { look: Duration, delete: Duration },
}

#[derive(Debug, Default)]
pub(crate) struct Rigged {
    inner: InMemory,
    way: Mutex<Way>,
    /// Objects that were looked for in vain, or listed too late, and how often that is still told.
    absent: Mutex<HashMap<Path, u32>>,
    /// How far each object's stamp is off, and how far that of the next one will be, in milliseconds.
    stamps: Mutex<(HashMap<Path, i64>, i64)>,
    /// What cannot be deleted, as under a legal hold.
    held: Mutex<Option<Path>>,
    /// Stamps are cut to seconds.
    whole_seconds: bool,
    calls: Mutex<Vec<String>>,
    /// When objects were deleted, and which.
    deleted: Arc<Mutex<Vec<(Instant, Path)>>>,
    count: AtomicU64,
    /// How many calls there were since [`set_at`](Self::set_at), and from which on another way is taken.
    turns: Mutex<(usize, Option<Turn>)>,
}

/// The call from which on, whether also all behind it, and which way.
type Turn = (usize, bool, Way);

impl Rigged {
    pub(crate) fn new(way: Way) -> Arc<Self> {
        Arc::new(Self { way: Mutex::new(way), ..Self::default() })
    }

    /// An honest one whose stamps are of whole seconds, as in the headers of HTTP.
    pub(crate) fn of_whole_seconds() -> Arc<Self> {
        Arc::new(Self { whole_seconds: true, ..Self::default() })
    }

    pub(crate) fn set(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }

    /// At the call with this number from now on, the first being 0, it does it this way; `always`: at all behind it too.
    pub(crate) fn set_at(&self, number: usize, always: bool, way: Way) {
        *self.turns.lock().unwrap() = (0, Some((number, always, way)));
    }

    /// Ends that, and answers whether there was such a call.
    pub(crate) fn end_at(&self) -> bool {
        let (calls, at) = std::mem::take(&mut *self.turns.lock().unwrap());
        at.is_some_and(|(number, ..)| calls > number)
    }

    /// How the call is served that was counted last.
    fn way(&self) -> Way {
        match *self.turns.lock().unwrap() {
            (calls, Some((number, always, way))) if calls == number + 1 || always && calls > number => way,
            _ => *self.way.lock().unwrap(),
        }
    }

    fn take_turn(&self) {
        self.turns.lock().unwrap().0 += 1;
    }

    /// Sets the service's clock, by which what is written from now on is stamped, so far ahead of or behind the true one.
    pub(crate) fn set_clock(&self, millis: i64) {
        self.stamps.lock().unwrap().1 = millis;
    }

    /// That object cannot be deleted any more, or all can be again.
    pub(crate) fn hold(&self, name: Option<&str>) {
        *self.held.lock().unwrap() = name.map(Path::from);
    }

    /// What it was asked since the last time.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// Which objects below `prefix` were deleted, and when.
    pub(crate) fn deleted(&self, prefix: &str) -> Vec<Instant> {
        let deleted = self.deleted.lock().unwrap();
        deleted.iter().filter(|(_, path)| path.as_ref().starts_with(prefix)).map(|(when, _)| *when).collect()
    }

    /// The names of all objects below `prefix`.
    pub(crate) async fn names(&self, prefix: &str) -> Vec<String> {
        let prefix = Path::from(prefix);
        self.inner.list(Some(&prefix)).map(|meta| meta.unwrap().location.to_string()).collect().await
    }

    fn note(&self, what: &str, path: &Path) {
        self.take_turn();
        self.calls.lock().unwrap().push(format!("{what} {path}"));
    }

    fn stamp(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let off = self.stamps.lock().unwrap().0.get(&meta.location).copied().unwrap_or(0);
        let by = Duration::from_millis(off.unsigned_abs());
        meta.last_modified = if off < 0 { meta.last_modified - by } else { meta.last_modified + by };
        if self.whole_seconds {
            let part = Duration::from_nanos(meta.last_modified.timestamp_subsec_nanos().into());
            meta.last_modified -= part;
        }
        meta
    }

    /// What happens to every call.
    async fn way_in(&self, path: &Path) -> Result<()> {
        match self.way() {
            Way::Silent => std::future::pending().await,
            Way::Unreachable => Err(Self::error("it cannot be reached")),
            Way::Denied => Err(Error::PermissionDenied { path: path.to_string(), source: "403".into() }),
            Way::Yields => {
                tokio::task::yield_now().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn error(what: &'static str) -> Error {
        Error::Generic { store: "rigged", source: what.into() }
    }

    fn is_absent(&self, path: &Path, way: Way) -> bool {
        let mut absent = self.absent.lock().unwrap();
        match absent.get_mut(path) {
            Some(times) if self.way() == way && *times > 0 => {
                *times -= 1;
                true
            }
            _ => false,
        }
    }
}

impl fmt::Display for Rigged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rigged")
    }
}

#[async_trait]
impl ObjectStore for Rigged {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut opts: PutOptions) -> Result<PutResult> {
        self.note("put", path);
        self.way_in(path).await?;
        let creates = opts.mode == PutMode::Create;
        let refused = || Error::AlreadyExists { path: path.to_string(), source: "409".into() };
        match self.way() {
            Way::Overwrites => opts.mode = PutMode::Overwrite,
            Way::Unconditional if creates => {
                return Err(Error::NotImplemented { operation: "create".into(), implementer: "rigged".into() });
            }
            Way::ConflictsWithNothing | Way::RefusesAll if creates => return Err(refused()),
            Way::RefusesAndWrites if creates => {
                let options = PutOptions { mode: PutMode::Overwrite, ..opts.clone() };
                let put = self.inner.put_opts(path, payload.clone(), opts).await;
                self.inner.put_opts(path, payload, options).await?;
                return put;
            }
            Way::TwoClocks(apart) => {
                let ahead = i64::from(self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2));
                self.set_clock(ahead * apart);
            }
            Way::ListsLate => drop(self.absent.lock().unwrap().insert(path.clone(), 1)),
            _ => {}
        }
        let put = self.inner.put_opts(path, payload, opts).await;
        if put.is_ok() {
            let mut stamps = self.stamps.lock().unwrap();
            let off = stamps.1;
            stamps.0.insert(path.clone(), off);
        }
        match self.way() {
            Way::AnswersLost if creates => Err(Self::error("the answer was lost")),
            Way::Unanswered => Err(Self::error("the answer was lost")),
            _ => put,
        }
    }

    async fn put_multipart_opts(&self, path: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, opts).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.note(if options.head { "head" } else { "get" }, path);
        self.way_in(path).await?;
        let not_found = |why: &'static str| Error::NotFound { path: path.to_string(), source: why.into() };
        if self.way() == Way::NoBucket {
            return Err(not_found("404 <Error><Code>NoSuchBucket</Code></Error>"));
        }
        if let Way::Slow { look, .. } = self.way()
            && options.head
        {
            tokio::time::sleep(look).await;
        }
        if self.is_absent(path, Way::RemembersAbsence) {
            return Err(not_found("404 from a cache"));
        }
        match self.inner.get_opts(path, options).await {
            _ if self.way() == Way::Unanswered => Err(Self::error("the answer was lost")),
            Ok(mut found) => {
                found.meta = self.stamp(found.meta);
                Ok(found)
            }
            Err(error) => {
                self.absent.lock().unwrap().insert(path.clone(), 2);
                Err(error)
            }
        }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.take_turn();
        let held = self.held.lock().unwrap().clone();
        let allowed = move |path: Result<Path>| {
            path.and_then(|path| match held.as_ref() == Some(&path) {
                true => Err(Self::error("it is held")),
                false => Ok(path),
            })
        };
        let paths = paths.map(allowed).boxed();
        match self.way() {
            Way::Unanswered => {
                let deleted = self.inner.delete_stream(paths);
                deleted.map(|_| Err(Self::error("the answer was lost"))).boxed()
            }
            Way::Keeps => paths,
            Way::Unreachable => futures_util::stream::once(async { Err(Self::error("it cannot be reached")) }).boxed(),
            Way::Silent => futures_util::stream::pending().boxed(),
            Way::DeletesHalf => {
                let half = paths.enumerate().map(|(i, path)| if i % 2 == 0 { path } else { Err(Self::error("no")) });
                self.inner.delete_stream(half.boxed())
            }
            Way::Slow { delete, .. } => {
                let deleted = self.deleted.clone();
                let slow = paths.then(move |path| {
                    let deleted = deleted.clone();
                    async move {
                        tokio::time::sleep(delete).await;
                        deleted.lock().unwrap().extend(path.as_ref().ok().map(|path| (Instant::now(), path.clone())));
                        path
                    }
                });
                self.inner.delete_stream(slow.boxed())
            }
            Way::Yields => {
                let slow = paths.then(|path| async {
                    tokio::task::yield_now().await;
                    path
                });
                self.inner.delete_stream(slow.boxed())
            }
            _ => self.inner.delete_stream(paths),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.cloned().unwrap_or_default();
        self.note("list", &prefix);
        match self.way() {
            Way::Silent => return futures_util::stream::pending().boxed(),
            Way::Unreachable | Way::Unanswered => {
                return futures_util::stream::once(async { Err(Self::error("it cannot be reached")) }).boxed();
            }
            _ => {}
        }
        // In memory a list is whole when it is made.
        let mut listed = Vec::new();
        let mut stream = self.inner.list(Some(&prefix));
        while let Some(Some(meta)) = futures_util::FutureExt::now_or_never(stream.next()) {
            let meta = meta.unwrap();
            if !self.is_absent(&meta.location, Way::ListsLate) {
                listed.push(Ok(self.stamp(meta)));
            }
        }
        let yields = self.way() == Way::Yields;
        let slow = futures_util::stream::iter(listed).then(move |meta| async move {
            if yields {
                tokio::task::yield_now().await;
            }
            meta
        });
        slow.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        self.note("folders", &path);
        self.way_in(&path).await?;
        match self.inner.list_with_delimiter(prefix).await {
            _ if self.way() == Way::Unanswered => Err(Self::error("the answer was lost")),
            listed => listed,
        }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
