//! The queue between the thread of the engine and the reader of an answer.
//!
//! Waking a task takes longer than everything else that is done for a token, and it takes a core
//! from the computation. A receiver that needs no tokens yet is therefore not woken for them,
//! but for every other event, and when many tokens wait.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rf_engine::scheduler::Event;

/// A queue of events, each with the index of its job, that holds at most `capacity` of them.
pub(crate) fn queue(capacity: usize) -> (EventSender, EventReceiver) {
    let state = State {
        events: VecDeque::new(),
        capacity,
        senders: 1,
        has_receiver: true,
        has_overflowed: false,
        is_urgent: false,
        waker: None,
        wakes_for_tokens: false,
    };
    let shared = Arc::new(Mutex::new(state));
    (EventSender(Arc::clone(&shared)), EventReceiver(shared))
}

/// The engine's end of a queue.
#[derive(Debug)]
pub(crate) struct EventSender(Arc<Mutex<State>>);

/// The end of the task that answers the request.
#[derive(Debug)]
pub(crate) struct EventReceiver(Arc<Mutex<State>>);

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about the two ends")]
struct State {
    events: VecDeque<(usize, Event)>,
    capacity: usize,
    senders: usize,
    has_receiver: bool,
    /// An event was refused because the queue was full.
    has_overflowed: bool,
    /// The receiver takes the events even if it needs no tokens.
    is_urgent: bool,
    /// The receiver, if it waits.
    waker: Option<Waker>,
    wakes_for_tokens: bool,
}

/// Tokens that wait until they are urgent, as a part of the capacity.
const URGENT_PART: usize = 8;

impl EventSender {
    /// Adds an event. It never waits: `Break` if the queue is full, or has no receiver.
    pub(crate) fn send(&self, job: usize, event: Event) -> ControlFlow<()> {
        let mut state = lock(&self.0);
        if !state.has_receiver {
            return ControlFlow::Break(());
        }
        if state.events.len() >= state.capacity {
            state.has_overflowed = true;
            return ControlFlow::Break(());
        }
        let is_token = matches!(event, Event::Token { .. });
        state.events.push_back((job, event));
        state.is_urgent |= !is_token || state.events.len() * URGENT_PART >= state.capacity;
        if state.is_urgent || state.wakes_for_tokens {
            wake(state);
        }
        ControlFlow::Continue(())
    }
}

impl Clone for EventSender {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.senders -= 1;
        if state.senders == 0 {
            state.is_urgent = true;
            wake(state);
        }
    }
}

impl EventReceiver {
    /// Takes the next event; `None` after the last one, when there is no sender. Without
    /// `wants_tokens`, tokens stay in the queue until another event follows them, or many wait.
    pub(crate) fn poll(
        &self,
        cx: &mut Context<'_>,
        wants_tokens: bool,
    ) -> Poll<Option<(usize, Event)>> {
        let mut state = lock(&self.0);
        if (wants_tokens || state.is_urgent)
            && let Some(event) = state.events.pop_front()
        {
            return Poll::Ready(Some(event));
        }
        if state.events.is_empty() {
            if state.senders == 0 {
                return Poll::Ready(None);
            }
            state.is_urgent = false;
        }
        state.wakes_for_tokens = wants_tokens;
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            waker => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Returns true if an event was lost because the queue was full.
    pub(crate) fn has_overflowed(&self) -> bool {
        lock(&self.0).has_overflowed
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.has_receiver = false;
        state.events.clear();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the receiver after unlocking, as it takes the lock next.
fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn token(id: u32) -> Event {
        Event::Token { choice: 0, id, text: String::new(), logprob: None }
    }

    fn started() -> Event {
        Event::Started { prompt_tokens: 1, cached_tokens: 0, seed: 0 }
    }

    /// The ids of the tokens that are taken now, with 0 for other events, and the number of wakes.
    struct Reader {
        receiver: EventReceiver,
        wakes: Arc<Wakes>,
    }

    impl Reader {
        fn new(receiver: EventReceiver) -> Self {
            Self { receiver, wakes: Arc::default() }
        }

        fn take(&self, wants_tokens: bool) -> (Vec<u32>, bool) {
            let waker = Waker::from(Arc::clone(&self.wakes));
            let mut cx = Context::from_waker(&waker);
            let mut ids = Vec::new();
            loop {
                match self.receiver.poll(&mut cx, wants_tokens) {
                    Poll::Ready(Some((_, Event::Token { id, .. }))) => ids.push(id),
                    Poll::Ready(Some(_)) => ids.push(0),
                    Poll::Ready(None) => return (ids, true),
                    Poll::Pending => return (ids, false),
                }
            }
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Relaxed)
        }
    }

    #[test]
    fn tokens_wake_only_a_receiver_that_wants_them() {
        let (sender, receiver) = queue(100);
        let reader = Reader::new(receiver);
        assert_eq!(reader.take(true), (vec![], false));
        assert!(sender.send(0, token(1)).is_continue());
        assert_eq!(reader.wakes(), 1);
        assert!(sender.send(0, token(2)).is_continue());
        assert_eq!(reader.wakes(), 1, "it is awake");
        assert_eq!(reader.take(true), (vec![1, 2], false));

        assert_eq!(reader.take(false), (vec![], false));
        assert!(sender.send(0, token(3)).is_continue());
        assert_eq!((reader.wakes(), reader.take(false)), (1, (vec![], false)));
        // Another event comes with the tokens before it.
        assert!(sender.send(0, started()).is_continue());
        assert_eq!((reader.wakes(), reader.take(false)), (2, (vec![3, 0], false)));
        // So does the thirteenth token, an eighth of the capacity.
        let sent = |id| sender.send(0, token(id)).is_continue();
        assert!((1..13).all(sent));
        assert_eq!((reader.wakes(), reader.take(false).0.len()), (2, 0));
        assert!(sent(13));
        assert_eq!((reader.wakes(), reader.take(false).0.len()), (3, 13));
    }

    #[test]
    fn the_last_sender_ends_the_queue_after_its_events() {
        let (sender, receiver) = queue(10);
        let (other, reader) = (sender.clone(), Reader::new(receiver));
        assert_eq!(reader.take(false), (vec![], false));
        assert!(other.send(1, token(7)).is_continue());
        drop(sender);
        assert_eq!((reader.wakes(), reader.take(false)), (0, (vec![], false)));
        drop(other);
        assert_eq!((reader.wakes(), reader.take(false)), (1, (vec![7], true)));
    }

    #[test]
    fn a_full_queue_and_one_without_a_receiver_take_nothing() {
        let (sender, receiver) = queue(2);
        assert!(sender.send(0, token(1)).is_continue());
        assert!(sender.send(0, token(2)).is_continue());
        assert!(!receiver.has_overflowed());
        assert!(sender.send(0, started()).is_break());
        assert!(receiver.has_overflowed());
        drop(receiver);
        assert!(sender.send(0, token(3)).is_break());
    }
}
