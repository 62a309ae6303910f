//! No executor says which task it polls next. So tasks are polled here, in an order that the seed draws and that can be had again.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use crate::World;

/// Polls tasks one at a time in an order drawn from the world's seed, so that an interleaving can be had again.
///
/// It runs inside any executor, since stores may need theirs, and gives way to it every so often.
pub struct Scheduler {
    world: World,
    tasks: Vec<Task>,
    outer: Arc<Mutex<Option<Waker>>>,
    steps: u32,
}

struct Task {
    number: u64,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    flag: Arc<Flag>,
}

struct Flag {
    woken: AtomicBool,
    outer: Arc<Mutex<Option<Waker>>>,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This task gave way.
    Pending(u64),
    /// This task has ended.
    Ended(u64),
    /// There is no task.
    Idle,
}

/// Steps after which the executor around gets its turn.
const STEPS_PER_TURN: u32 = 16;

impl Scheduler {
    /// No tasks yet.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self { world, tasks: Vec::new(), outer: Arc::default(), steps: 0 }
    }

    /// Adds a task, and gives its number.
    pub fn start(&mut self, future: impl Future<Output = ()> + Send + 'static) -> u64 {
        let number = self.world.number();
        let flag = Arc::new(Flag { woken: AtomicBool::new(true), outer: self.outer.clone() });
        self.tasks.push(Task { number, future: Box::pin(future), flag });
        number
    }

    /// Drops a task where it stands, as a crash would.
    pub fn drop_task(&mut self, number: u64) {
        self.tasks.retain(|task| task.number != number);
    }

    /// The numbers of the tasks.
    pub fn tasks(&self) -> impl Iterator<Item = u64> + '_ {
        self.tasks.iter().map(|task| task.number)
    }

    /// Polls one task that can go on, and waits until there is one.
    pub async fn step(&mut self) -> Step {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_TURN) {
            crate::yield_once().await;
        }
        poll_fn(|cx| self.poll_step(cx)).await
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.tasks.is_empty() {
            return Poll::Ready(Step::Idle);
        }
        // Before the look, so that a wake in between is not lost.
        *self.outer.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        let woken = |(index, task): (usize, &Task)| task.flag.woken.load(Ordering::Acquire).then_some(index);
        let woken: Vec<usize> = self.tasks.iter().enumerate().filter_map(woken).collect();
        if woken.is_empty() {
            return Poll::Pending;
        }
        let index = woken[self.world.below(woken.len())];
        let task = &mut self.tasks[index];
        task.flag.woken.store(false, Ordering::Release);
        let number = task.number;
        let waker = Waker::from(task.flag.clone());
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(index);
            return Poll::Ready(Step::Ended(number));
        }
        Poll::Ready(Step::Pending(number))
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        if let Some(outer) = self.outer.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            outer.wake_by_ref();
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}
