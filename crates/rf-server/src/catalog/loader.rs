//! The thread that loads and unloads models.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use rocmforge::Model;

use super::adapters::NamedAdapter;
use super::shared::{CatalogState, Inner, Leased, Loaded, LoadedService, ModelSlot, State, Waiter};
use crate::entry::{ModelKind, ModelLoader};
use crate::error::ApiError;

type Guard<'a> = MutexGuard<'a, Inner>;

impl CatalogState {
    /// Loads the models of the queue, and unloads those whose time is over, until the server ends.
    pub(super) fn serve(self: Arc<Self>) {
        let mut inner = self.lock();
        while !inner.is_closed {
            if let Some(index) = inner.reloads.pop_front() {
                inner = self.unload(index, inner);
                continue;
            }
            if let Some(index) = inner.queue.pop_front() {
                drop(inner);
                self.load(index);
                inner = self.lock();
                continue;
            }
            let next = inner.next_expiry();
            let now = Instant::now();
            inner = match next {
                Some((index, at)) if at <= now => self.unload(index, inner),
                Some((_, at)) => {
                    let waited = self.changed.wait_timeout(inner, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Loads a model and answers the requests that wait for it.
    fn load(self: &Arc<Self>, index: usize) {
        let slot = self.slot(index);
        let Some(loader) = &slot.loader else { return };
        if !self.is_wanted(index) {
            return;
        }
        tracing::info!(model = slot.id(), "loading");
        let started = Instant::now();
        let mut bytes = 0;
        let mut make_room = |needed: u64| {
            bytes = needed;
            self.make_room(needed);
        };
        let mut adapters = slot.adapters.wanted();
        let mut loaded = attempt(&**loader, &slot, &adapters, &mut make_room);
        if let Err(failure) = &loaded
            && slot.adapters.refuse(failure)
        {
            tracing::warn!(model = slot.id(), %failure, "not loaded with other adapters");
            adapters = slot.adapters.wanted();
            loaded = attempt(&**loader, &slot, &adapters, &mut make_room);
        }
        let ms = started.elapsed().as_millis();
        match loaded {
            Ok(model) => {
                tracing::info!(model = slot.id(), bytes, ms, "loaded");
                slot.adapters.settle(adapters.clone());
                self.publish(index, &slot, slot.service(model, adapters), bytes);
            }
            Err(failure) => {
                tracing::warn!(model = slot.id(), %failure, "not loaded");
                self.fail(index, failure);
            }
        }
    }

    /// Returns true if a request still waits for the model. If none does, it stays unloaded.
    fn is_wanted(&self, index: usize) -> bool {
        let mut inner = self.lock();
        let preload = inner.preloads.iter().position(|preload| *preload == index);
        let is_preload = preload.is_some_and(|at| inner.preloads.swap_remove(at) == index);
        let state = &mut inner.states[index];
        let State::Loading { waiters } = state else { return false };
        waiters.retain(|waiter| !waiter.reply.is_closed());
        let is_wanted = is_preload || !waiters.is_empty();
        if !is_wanted {
            *state = State::Unloaded { failure: None };
        }
        is_wanted
    }

    fn publish(
        self: &Arc<Self>,
        index: usize,
        slot: &ModelSlot,
        service: LoadedService,
        bytes: u64,
    ) {
        let mut loaded = Loaded::new(service, bytes);
        let keep_alive = slot.settings().keep_alive.unwrap_or(self.keep_alive);
        loaded.expires = keep_alive.duration().and_then(|time| loaded.last_used.checked_add(time));
        if !slot.is_there() {
            loaded.expires = Some(loaded.last_used);
        }
        let mut inner = self.lock();
        let waiters = inner.states[index].take_waiters();
        let leases: Vec<_> = waiters
            .into_iter()
            .map(|Waiter { reply, keep_alive }| {
                (reply, Leased::new(self, index, &mut loaded, keep_alive))
            })
            .collect();
        inner.states[index] = State::Loaded(loaded);
        // A lease that nobody takes any more is dropped, which needs the lock.
        drop(inner);
        for (reply, leased) in leases {
            drop(reply.send(Ok(leased)));
        }
    }

    fn fail(&self, index: usize, failure: String) {
        let mut inner = self.lock();
        let waiters = inner.states[index].take_waiters();
        let error = ApiError::load_failed(self.slot(index).id(), &failure);
        inner.states[index] = State::Unloaded { failure: Some(failure) };
        drop(inner);
        for waiter in waiters {
            drop(waiter.reply.send(Err(error.clone())));
        }
    }

    /// Unloads models until `needed` bytes fit into the budget: those that nobody uses first, and
    /// among them the one whose last use is the longest ago.
    fn make_room(&self, needed: u64) {
        let Some(budget) = self.budget_bytes else { return };
        let mut inner = self.lock();
        while let Some(index) = inner.reloads.pop_front() {
            inner = self.unload(index, inner);
        }
        while !inner.is_closed && inner.loaded_bytes().saturating_add(needed) > budget {
            let victims =
                inner.states.iter().enumerate().filter_map(|(index, state)| match state {
                    State::Loaded(loaded) if self.slot(index).loader.is_some() => {
                        Some((loaded.users > 0, loaded.last_used, index))
                    }
                    _ => None,
                });
            let Some((.., victim)) = victims.min() else { return };
            inner = self.unload(victim, inner);
        }
    }

    /// Waits for the end of a model's requests and drops it.
    fn unload<'a>(&'a self, index: usize, mut inner: Guard<'a>) -> Guard<'a> {
        let state = std::mem::replace(&mut inner.states[index], State::Unloaded { failure: None });
        inner.states[index] = match state {
            State::Loaded(loaded) => State::Retiring { loaded, waiters: Vec::new() },
            other => other,
        };
        let is_used = |inner: &mut Inner| {
            !inner.is_closed
                && inner.states[index].loaded_mut().is_some_and(|loaded| loaded.users > 0)
        };
        inner = self.changed.wait_while(inner, is_used).unwrap_or_else(PoisonError::into_inner);
        let state = std::mem::replace(&mut inner.states[index], State::Unloaded { failure: None });
        let State::Retiring { loaded, waiters } = state else { return inner };
        if !waiters.is_empty() {
            inner.states[index] = State::Loading { waiters };
            inner.queue.push_back(index);
        }
        drop(inner);
        if let LoadedService::Generate(generator) = &loaded.service {
            generator.retire();
        }
        // This waits for the thread of the engine and frees its memory.
        drop(loaded);
        tracing::info!(model = self.slot(index).id(), "unloaded");
        self.lock()
    }
}

/// Loads a model with these adapters.
fn attempt(
    loader: &dyn ModelLoader,
    slot: &ModelSlot,
    adapters: &[NamedAdapter],
    make_room: &mut dyn FnMut(u64),
) -> Result<Model, String> {
    let paths: Vec<_> = adapters.iter().map(|adapter| adapter.path.clone()).collect();
    let load = AssertUnwindSafe(|| loader.load_with_adapters(&paths, make_room));
    match catch_unwind(load) {
        Ok(Ok(model)) if ModelKind::of_loaded(&model) == slot.kind => Ok(model),
        Ok(Ok(_)) => Err("it is of another kind than announced".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("loading it panicked".to_owned()),
    }
}

impl Inner {
    /// The model whose time is over first, among those that nobody uses.
    fn next_expiry(&self) -> Option<(usize, Instant)> {
        let expiries = self.states.iter().enumerate().filter_map(|(index, state)| match state {
            State::Loaded(loaded) if loaded.users == 0 => Some((index, loaded.expires?)),
            _ => None,
        });
        expiries.min_by_key(|(_, at)| *at)
    }

    fn loaded_bytes(&self) -> u64 {
        let bytes = self.states.iter().map(|state| match state {
            State::Loaded(loaded) | State::Retiring { loaded, .. } => loaded.bytes,
            State::Unloaded { .. } | State::Loading { .. } => 0,
        });
        bytes.fold(0, u64::saturating_add)
    }
}

impl State {
    fn take_waiters(&mut self) -> Vec<Waiter> {
        match self {
            Self::Loading { waiters } | Self::Retiring { waiters, .. } => std::mem::take(waiters),
            Self::Unloaded { .. } | Self::Loaded(_) => Vec::new(),
        }
    }
}
