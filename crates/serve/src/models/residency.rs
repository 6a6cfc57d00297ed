//! Which models are in memory: commands in, decisions out; no clock, no threads.
//!
//! A model is loaded when a request needs it. If the memory is too small for it, others leave: first those that no request
//! uses, the least recently used one first. If that is not enough, a model in use is drained: it takes no further
//! requests, and leaves once those that run have ended. Pinned models stay. Requests wait in order; the model of the
//! first one on a device is the next to be loaded there. Models of one device share its memory, and do not wait for those of
//! another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tensor::DeviceSpec;

use crate::config::KeepAlive;

/// A model, for as long as the server lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelKey(pub(super) u64);

/// A request that waits for a model. Later ones have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// How a model stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResidencyTerms {
    /// Where its weights and its cache are.
    pub(super) device: DeviceSpec,
    /// Bytes of these.
    pub(super) need: u64,
    /// How long it stays unused.
    pub(super) keep_alive: KeepAlive,
    /// Whether it stays until it is unloaded by name.
    pub(super) pinned: bool,
}

/// An event or a request that the residency decides on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// The server lists a model, from now on or with other settings.
    List { model: ModelKey, terms: ResidencyTerms },
    /// The server no longer lists a model.
    Remove(ModelKey),
    /// A request needs a model.
    Acquire { model: ModelKey, ticket: Ticket },
    /// A request no longer waits.
    GiveUp { model: ModelKey, ticket: Ticket },
    /// A request that used a model has ended.
    Release(ModelKey),
    /// A model is in memory.
    Loaded(ModelKey),
    /// A model could not be loaded. Those who wait for it are told elsewhere.
    LoadFailed(ModelKey),
    /// A model has left memory.
    Unloaded(ModelKey),
    /// A model is to leave memory once no request uses it.
    Unload(ModelKey),
    /// A model is to stay, or may leave again.
    Pin { model: ModelKey, pinned: bool },
    /// How long a model stays unused, until it leaves memory.
    KeepAlive { model: ModelKey, keep_alive: KeepAlive },
    /// Time has passed.
    Tick,
}

/// An action that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// A request may use its model, until [`Command::Release`].
    Grant { model: ModelKey, ticket: Ticket },
    /// A request cannot be answered: its model does not fit.
    Refuse { model: ModelKey, ticket: Ticket, refusal: Refusal },
    /// Load a model.
    Load(ModelKey),
    /// Remove a model from memory.
    Unload(ModelKey),
}

/// Why a model cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It needs more than all models of its device may have.
    TooLarge { need: u64, budget: u64 },
    /// Pinned models leave too little.
    Pinned { need: u64, free: u64 },
    /// The server does not list it any more.
    Removed,
}

/// Where a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Loading,
    Ready,
    /// It leaves memory as soon as no request uses it.
    Draining,
    /// It is leaving memory.
    Unloading,
}

/// The models and their memory.
#[derive(Debug, Default)]
pub(super) struct Residency {
    /// Bytes that all models of a device together may need.
    budgets: BTreeMap<DeviceSpec, u64>,
    /// Since the server started.
    now: Duration,
    models: BTreeMap<ModelKey, Resident>,
}

#[derive(Debug)]
struct Resident {
    state: State,
    terms: ResidencyTerms,
    /// In force while the model is in memory.
    keep_alive: KeepAlive,
    running: usize,
    waiting: VecDeque<Ticket>,
    /// When a request last began or ended to use it.
    used_at: Duration,
    /// Whether it leaves once it is loaded and has answered those who wait now.
    leaves: bool,
    removed: bool,
}

/// Whether a model can be loaded.
enum Placement {
    Now,
    /// Once others have left, or are loaded and can leave.
    Later,
    Never(Refusal),
}

impl Residency {
    /// Sets how many bytes models of a device may need, unless that was set before.
    pub(super) fn add_device(&mut self, device: DeviceSpec, budget: u64) {
        self.budgets.entry(device).or_insert(budget);
    }

    /// Takes a command at a time, which never goes back.
    pub(super) fn apply(&mut self, now: Duration, command: Command) -> Vec<Decision> {
        self.now = self.now.max(now);
        let mut decisions = Vec::new();
        self.take(command, &mut decisions);
        self.let_go(&mut decisions);
        self.bring_in(&mut decisions);
        decisions
    }

    /// Bytes that models of a device need which are in memory, come or go.
    pub(super) fn used(&self, device: DeviceSpec) -> u64 {
        let used = self.on(device).filter(|model| model.state != State::Absent);
        used.map(|model| model.terms.need).sum()
    }

    /// Bytes that all models of a device together may need.
    pub(super) fn budget(&self, device: DeviceSpec) -> u64 {
        self.budgets.get(&device).copied().unwrap_or(u64::MAX)
    }

    /// What models need that are in memory, come or go, and what models may need, on all devices.
    pub(super) fn total(&self) -> (u64, u64) {
        let used = self.budgets.keys().map(|&device| self.used(device)).sum();
        (used, self.budgets.values().copied().fold(0, u64::saturating_add))
    }

    fn on(&self, device: DeviceSpec) -> impl Iterator<Item = &Resident> {
        self.models.values().filter(move |model| model.terms.device == device)
    }

    /// Where a model is.
    pub(super) fn state(&self, model: ModelKey) -> State {
        self.models.get(&model).map_or(State::Absent, |model| model.state)
    }

    /// When a model leaves memory unless it is used before: `None` if never, or if it is in use.
    pub(super) fn expires_at(&self, model: ModelKey) -> Option<Duration> {
        self.models.get(&model)?.expires_at()
    }

    /// Whether a model stays in memory.
    pub(super) fn is_pinned(&self, model: ModelKey) -> bool {
        self.models.get(&model).is_some_and(|model| model.terms.pinned)
    }

    /// Requests that use a model, and that wait for it.
    pub(super) fn requests(&self, model: ModelKey) -> (usize, usize) {
        self.models.get(&model).map_or((0, 0), |model| (model.running, model.waiting.len()))
    }

    /// When the next model leaves memory, if none is used before.
    pub(super) fn next_expiry(&self) -> Option<Duration> {
        self.models.values().filter_map(Resident::expires_at).min()
    }

    fn take(&mut self, command: Command, decisions: &mut Vec<Decision>) {
        use Command as C;
        let (C::List { model: key, .. }
        | C::Remove(key)
        | C::Acquire { model: key, .. }
        | C::GiveUp { model: key, .. }
        | C::Release(key)
        | C::Loaded(key)
        | C::LoadFailed(key)
        | C::Unloaded(key)
        | C::Unload(key)
        | C::Pin { model: key, .. }
        | C::KeepAlive { model: key, .. }) = command
        else {
            return;
        };
        let now = self.now;
        if let C::List { terms, .. } = command {
            self.models.entry(key).or_insert_with(|| Resident::new(terms)).list(terms);
            return;
        }
        let Some(model) = self.models.get_mut(&key) else {
            if let C::Acquire { ticket, .. } = command {
                decisions.push(Decision::Refuse { model: key, ticket, refusal: Refusal::Removed });
            }
            return;
        };
        match command {
            C::Remove(_) => model.remove(key, decisions),
            C::Acquire { ticket, .. } if model.removed => {
                decisions.push(Decision::Refuse { model: key, ticket, refusal: Refusal::Removed });
            }
            C::Acquire { ticket, .. } => {
                model.waiting.push_back(ticket);
                if model.state == State::Ready {
                    model.grant(key, now, decisions);
                }
            }
            C::GiveUp { ticket, .. } => model.waiting.retain(|&other| other != ticket),
            C::Release(_) => {
                model.running = model.running.saturating_sub(1);
                model.used_at = now;
            }
            C::Loaded(_) => {
                model.state = if model.leaves { State::Draining } else { State::Ready };
                model.grant(key, now, decisions);
            }
            C::LoadFailed(_) => {
                model.waiting.clear();
                model.leave();
            }
            C::Unloaded(_) => model.leave(),
            C::Unload(_) => match model.state {
                State::Ready => model.state = State::Draining,
                State::Loading => model.leaves = true,
                State::Absent | State::Draining | State::Unloading => {}
            },
            C::Pin { pinned, .. } => model.terms.pinned = pinned,
            C::KeepAlive { keep_alive, .. } => model.keep_alive = keep_alive,
            C::List { .. } | C::Tick => {}
        }
        self.models.retain(|_, model| !(model.removed && model.state == State::Absent));
    }

    /// Models leave that are drained, or were not used for long.
    fn let_go(&mut self, decisions: &mut Vec<Decision>) {
        for (&key, model) in &mut self.models {
            let drained = model.state == State::Draining && model.running == 0;
            if drained || model.expires_at().is_some_and(|time| time <= self.now) {
                model.state = State::Unloading;
                decisions.push(Decision::Unload(key));
            }
        }
    }

    /// Models come that requests wait for, in the order of these requests.
    fn bring_in(&mut self, decisions: &mut Vec<Decision>) {
        let mut full = BTreeSet::new();
        while let Some(key) = self.next_wanted(&full) {
            match self.make_room(key, decisions) {
                Placement::Now => {
                    self.model(key).state = State::Loading;
                    decisions.push(Decision::Load(key));
                }
                Placement::Later => {
                    full.insert(self.model(key).terms.device);
                }
                Placement::Never(refusal) => {
                    let refuse = |ticket| Decision::Refuse { model: key, ticket, refusal };
                    decisions.extend(self.model(key).waiting.drain(..).map(refuse));
                }
            }
        }
    }

    /// Finds the absent model with the oldest request, of those whose device is not full.
    fn next_wanted(&self, full: &BTreeSet<DeviceSpec>) -> Option<ModelKey> {
        let is_absent =
            |model: &Resident| model.state == State::Absent && !full.contains(&model.terms.device);
        let absent = self.models.iter().filter(|(_, model)| is_absent(model));
        let wanted = absent.filter_map(|(&key, model)| Some((*model.waiting.front()?, key)));
        wanted.min().map(|(_, key)| key)
    }

    /// Has models leave until there is room for another.
    fn make_room(&mut self, key: ModelKey, decisions: &mut Vec<Decision>) -> Placement {
        let ResidencyTerms { need, device, .. } = self.model(key).terms;
        let budget = self.budget(device);
        if need > budget {
            return Placement::Never(Refusal::TooLarge { need, budget });
        }
        let unused = budget.saturating_sub(self.used(device));
        if need <= unused {
            return Placement::Now;
        }
        let pinned = self.on(device).filter(|model| model.stays()).map(|model| model.terms.need);
        let free = budget.saturating_sub(pinned.sum());
        if need > free {
            return Placement::Never(Refusal::Pinned { need, free });
        }
        let leaving = [State::Draining, State::Unloading];
        let going = self.on(device).filter(|model| leaving.contains(&model.state));
        let mut coming = unused + going.map(|model| model.terms.need).sum::<u64>();
        while coming < need {
            let ready = self.models.iter_mut().filter(|(_, model)| model.state == State::Ready);
            let victims = ready.filter(|(_, model)| !model.terms.pinned && model.terms.device == device);
            let Some((&victim, model)) =
                victims.min_by_key(|(key, model)| (model.running > 0, model.used_at, **key))
            else {
                break;
            };
            coming += model.terms.need;
            if model.running == 0 {
                model.state = State::Unloading;
                decisions.push(Decision::Unload(victim));
            } else {
                model.state = State::Draining;
            }
        }
        Placement::Later
    }

    fn model(&mut self, key: ModelKey) -> &mut Resident {
        self.models.get_mut(&key).expect("keys of the map")
    }
}

impl Resident {
    fn new(terms: ResidencyTerms) -> Resident {
        Resident {
            state: State::Absent,
            terms,
            keep_alive: terms.keep_alive,
            running: 0,
            waiting: VecDeque::new(),
            used_at: Duration::ZERO,
            leaves: false,
            removed: false,
        }
    }

    /// Takes settings. The size of a model in memory stays until it is loaded again.
    fn list(&mut self, terms: ResidencyTerms) {
        let need = if self.state == State::Absent { terms.need } else { self.terms.need };
        (self.keep_alive, self.terms) = (terms.keep_alive, ResidencyTerms { need, ..terms });
    }

    fn remove(&mut self, key: ModelKey, decisions: &mut Vec<Decision>) {
        self.removed = true;
        let refuse = |ticket| Decision::Refuse { model: key, ticket, refusal: Refusal::Removed };
        decisions.extend(self.waiting.drain(..).map(refuse));
        match self.state {
            State::Ready => self.state = State::Draining,
            State::Loading => self.leaves = true,
            State::Absent | State::Draining | State::Unloading => {}
        }
    }

    /// All that wait may use the model.
    fn grant(&mut self, key: ModelKey, now: Duration, decisions: &mut Vec<Decision>) {
        self.used_at = now;
        self.running += self.waiting.len();
        decisions.extend(self.waiting.drain(..).map(|ticket| Decision::Grant { model: key, ticket }));
    }

    /// The model is not in memory any more.
    fn leave(&mut self) {
        (self.state, self.leaves, self.keep_alive) = (State::Absent, false, self.terms.keep_alive);
    }

    fn expires_at(&self) -> Option<Duration> {
        let is_idle = self.state == State::Ready && self.running == 0 && !self.terms.pinned;
        match self.keep_alive {
            KeepAlive::For(time) if is_idle => Some(self.used_at.saturating_add(time)),
            KeepAlive::For(_) | KeepAlive::Forever => None,
        }
    }

    /// Whether it is in memory and does not leave for another.
    fn stays(&self) -> bool {
        self.terms.pinned && matches!(self.state, State::Loading | State::Ready) && !self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: DeviceSpec = DeviceSpec::cpu();

    fn of_100_bytes() -> Residency {
        let mut residency = Residency::default();
        residency.add_device(CPU, 100);
        residency
    }

    /// Models `a`, `b`, `c`, … of 40 bytes each, which stay for 300 seconds, and memory for 100 bytes. Each line of the
    /// script is a command, perhaps after its time in seconds, and what is decided.
    fn check(models: u64, script: &str) {
        let mut residency = of_100_bytes();
        for index in 0..models {
            let terms = ResidencyTerms {
                device: CPU,
                need: 40,
                keep_alive: KeepAlive::For(Duration::from_secs(300)),
                pinned: false,
            };
            assert!(run(&mut residency, Command::List { model: ModelKey(index), terms }, 0).is_empty());
        }
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, expected) = line.split_once("=>").unwrap_or((line, ""));
            let mut words = command.split_whitespace().peekable();
            let seconds =
                words.next_if(|word| word.parse::<u64>().is_ok()).map_or(0, |word| word.parse().unwrap());
            let decisions = run(&mut residency, command_of(&words.collect::<Vec<_>>()), seconds);
            assert_eq!(decisions.join(", "), expected.trim(), "{line}");
            assert!(residency.used(CPU) <= 100, "{line}");
        }
    }

    fn run(residency: &mut Residency, command: Command, seconds: u64) -> Vec<String> {
        let decisions = residency.apply(Duration::from_secs(seconds), command);
        decisions.into_iter().map(printed).collect()
    }

    fn key(name: &str) -> ModelKey {
        ModelKey(u64::from(name.as_bytes()[0] - b'a'))
    }

    fn command_of(words: &[&str]) -> Command {
        match words[..] {
            ["acquire", model, ticket] => {
                Command::Acquire { model: key(model), ticket: Ticket(ticket.parse().unwrap()) }
            }
            ["give-up", model, ticket] => {
                Command::GiveUp { model: key(model), ticket: Ticket(ticket.parse().unwrap()) }
            }
            ["release", model] => Command::Release(key(model)),
            ["loaded", model] => Command::Loaded(key(model)),
            ["failed", model] => Command::LoadFailed(key(model)),
            ["unloaded", model] => Command::Unloaded(key(model)),
            ["unload", model] => Command::Unload(key(model)),
            ["remove", model] => Command::Remove(key(model)),
            ["pin", model] => Command::Pin { model: key(model), pinned: true },
            ["unpin", model] => Command::Pin { model: key(model), pinned: false },
            ["keep", model, seconds] => Command::KeepAlive {
                model: key(model),
                keep_alive: seconds
                    .parse()
                    .map_or(KeepAlive::Forever, |seconds| KeepAlive::For(Duration::from_secs(seconds))),
            },
            ["tick"] => Command::Tick,
            _ => panic!("{words:?}"),
        }
    }

    fn printed(decision: Decision) -> String {
        let name = |model: ModelKey| char::from(b'a' + model.0 as u8);
        match decision {
            Decision::Grant { model, ticket } => format!("grant {} {}", name(model), ticket.0),
            Decision::Refuse { model, ticket, refusal } => {
                let reason = match refusal {
                    Refusal::TooLarge { .. } => "too large",
                    Refusal::Pinned { .. } => "pinned",
                    Refusal::Removed => "removed",
                };
                format!("refuse {} {}: {reason}", name(model), ticket.0)
            }
            Decision::Load(model) => format!("load {}", name(model)),
            Decision::Unload(model) => format!("unload {}", name(model)),
        }
    }

    #[test]
    fn a_model_is_loaded_once_for_all_that_wait() {
        check(
            1,
            "acquire a 1 => load a
             acquire a 2
             acquire a 3
             give-up a 2
             loaded a => grant a 1, grant a 3
             acquire a 4 => grant a 4",
        );
    }

    #[test]
    fn the_least_recently_used_idle_model_leaves_first() {
        check(
            3,
            "1 acquire a 1 => load a
             1 loaded a => grant a 1
             2 acquire b 2 => load b
             2 loaded b => grant b 2
             3 release b
             4 release a
             5 acquire c 3 => unload b
             5 unloaded b => load c
             5 loaded c => grant c 3
             6 acquire b 4 => unload a
             6 acquire a 5
             6 unloaded a => load b",
        );
    }

    #[test]
    fn a_model_in_use_is_drained_and_takes_no_further_requests() {
        check(
            3,
            "1 acquire a 1 => load a
             1 loaded a => grant a 1
             2 acquire b 2 => load b
             2 loaded b => grant b 2
             3 acquire c 3
             4 acquire a 4
             4 acquire b 5 => grant b 5
             5 release a => unload a
             6 unloaded a => load c
             6 loaded c => grant c 3
             7 release b
             7 release b => unload b",
        );
    }

    #[test]
    fn requests_that_gave_up_wait_for_nothing() {
        check(
            3,
            "acquire a 1 => load a
             acquire b 2 => load b
             acquire c 3
             give-up c 3
             loaded a => grant a 1
             loaded b => grant b 2
             acquire c 4
             give-up c 4
             release a => unload a
             unloaded a",
        );
    }

    #[test]
    fn unused_models_leave_when_their_time_is_up() {
        check(
            2,
            "1 acquire a 1 => load a
             2 loaded a => grant a 1
             400 tick
             400 release a
             699 tick
             700 tick => unload a
             700 unloaded a
             800 acquire a 2 => load a
             800 keep a 5
             800 loaded a => grant a 2
             801 release a
             806 tick => unload a
             807 unloaded a
             900 acquire a 3 => load a
             900 loaded a => grant a 3
             901 release a
             906 tick
             906 keep a forever
             9999 tick
             9999 keep a 0 => unload a",
        );
    }

    #[test]
    fn pinned_models_stay_unless_they_are_unloaded_by_name() {
        check(
            3,
            "1 acquire a 1 => load a
             1 acquire b 2 => load b
             1 pin a
             1 pin b
             2 loaded a => grant a 1
             2 loaded b => grant b 2
             3 release a
             3 release b
             4 acquire c 3 => refuse c 3: pinned
             999 tick
             1000 unload a => unload a
             1000 acquire c 4
             1001 unloaded a => load c
             1002 loaded c => grant c 4
             1003 acquire a 5
             1004 release c => unload c",
        );
    }

    #[test]
    fn a_model_that_is_unloaded_while_it_is_loaded_answers_who_waits() {
        check(
            1,
            "acquire a 1 => load a
             unload a
             loaded a => grant a 1
             acquire a 2
             release a => unload a
             unloaded a => load a",
        );
    }

    #[test]
    fn a_failed_load_is_tried_again_for_the_next_request() {
        check(
            1,
            "acquire a 1 => load a
             failed a
             acquire a 2 => load a
             loaded a => grant a 2",
        );
    }

    #[test]
    fn a_model_that_is_removed_finishes_and_takes_nothing_new() {
        check(
            2,
            "acquire a 1 => load a
             acquire b 2 => load b
             loaded a => grant a 1
             remove a
             remove b => refuse b 2: removed
             acquire a 3 => refuse a 3: removed
             release a => unload a
             unloaded a
             loaded b => unload b
             acquire b 4 => refuse b 4: removed",
        );
    }

    #[test]
    fn a_model_larger_than_the_memory_is_refused() {
        let mut residency = of_100_bytes();
        let terms = ResidencyTerms { device: CPU, need: 101, keep_alive: KeepAlive::Forever, pinned: false };
        run(&mut residency, Command::List { model: ModelKey(0), terms }, 0);
        let refused = run(&mut residency, Command::Acquire { model: ModelKey(0), ticket: Ticket(1) }, 0);
        assert_eq!(refused, ["refuse a 1: too large"]);
        run(
            &mut residency,
            Command::List { model: ModelKey(0), terms: ResidencyTerms { need: 100, ..terms } },
            0,
        );
        let loaded = run(&mut residency, Command::Acquire { model: ModelKey(0), ticket: Ticket(2) }, 0);
        assert_eq!(loaded, ["load a"]);
    }

    #[test]
    fn models_of_another_device_have_its_memory_and_do_not_wait() {
        let gpu = DeviceSpec::accelerator(0).unwrap();
        let mut residency = of_100_bytes();
        residency.add_device(gpu, 50);
        residency.add_device(gpu, 10);
        let keep_alive = KeepAlive::Forever;
        for (index, device) in [(0, CPU), (1, CPU), (2, gpu), (3, gpu)] {
            let terms = ResidencyTerms { device, need: 45 + 10 * (1 - index / 2), keep_alive, pinned: false };
            run(&mut residency, Command::List { model: ModelKey(index), terms }, 0);
        }
        let mut acquire =
            |line: &str| run(&mut residency, command_of(&line.split(' ').collect::<Vec<_>>()), 0);
        assert_eq!(acquire("acquire a 1"), ["load a"]);
        assert!(acquire("acquire b 2").is_empty(), "a is on its way");
        assert_eq!(acquire("acquire c 3"), ["load c"]);
        assert!(acquire("acquire d 4").is_empty());
        assert_eq!((residency.used(CPU), residency.used(gpu)), (55, 45));
        assert_eq!((residency.budget(CPU), residency.budget(gpu)), (100, 50));
    }

    /// Any order of events keeps the budget, loads no model twice, and answers every waiting request.
    #[test]
    fn random_scripts_keep_the_budget_and_answer_everyone() {
        for seed in 0..200 {
            let mut world = World::new(seed);
            for _ in 0..400 {
                world.act();
            }
            world.finish();
        }
    }

    /// Does what is decided, at random times.
    struct World {
        random: fastrand::Rng,
        residency: Residency,
        time: u64,
        tickets: u64,
        /// Models that are being loaded, that are leaving, and in use once for each request.
        loading: Vec<ModelKey>,
        unloading: Vec<ModelKey>,
        running: Vec<ModelKey>,
        waiting: Vec<Ticket>,
    }

    impl World {
        fn new(seed: u64) -> World {
            let mut residency = of_100_bytes();
            for index in 0..4 {
                let keep_alive = KeepAlive::For(Duration::from_secs(10));
                let terms = ResidencyTerms { device: CPU, need: 30 + index * 5, keep_alive, pinned: false };
                residency.apply(Duration::ZERO, Command::List { model: ModelKey(index), terms });
            }
            let random = fastrand::Rng::with_seed(seed);
            let (loading, unloading, running, waiting) = Default::default();
            World { random, residency, time: 0, tickets: 0, loading, unloading, running, waiting }
        }

        fn take(&mut self, list: fn(&mut World) -> &mut Vec<ModelKey>) -> Option<ModelKey> {
            let length = list(self).len();
            let index = (length > 0).then(|| self.random.usize(..length))?;
            Some(list(self).swap_remove(index))
        }

        fn act(&mut self) {
            let model = ModelKey(self.random.u64(..4));
            let command = match self.random.u32(..10) {
                0..3 => {
                    self.tickets += 1;
                    self.waiting.push(Ticket(self.tickets));
                    Some(Command::Acquire { model, ticket: Ticket(self.tickets) })
                }
                3..6 => self.take(|world| &mut world.running).map(Command::Release),
                6 => self.take(|world| &mut world.loading).map(Command::Loaded),
                7 => self.take(|world| &mut world.unloading).map(Command::Unloaded),
                8 => Some(Command::Unload(model)),
                _ => {
                    self.time += 1;
                    Some(Command::Tick)
                }
            };
            command.into_iter().for_each(|command| self.apply(command));
        }

        fn apply(&mut self, command: Command) {
            for decision in self.residency.apply(Duration::from_secs(self.time), command) {
                match decision {
                    Decision::Load(model) => {
                        assert!(!self.loading.contains(&model) && !self.unloading.contains(&model));
                        self.loading.push(model);
                    }
                    Decision::Unload(model) => {
                        assert!(!self.running.contains(&model), "a model leaves that is in use");
                        self.unloading.push(model);
                    }
                    Decision::Grant { model, ticket } => {
                        let place = self.waiting.iter().position(|&other| other == ticket);
                        self.waiting.swap_remove(place.expect("it waits"));
                        self.running.push(model);
                    }
                    Decision::Refuse { .. } => panic!("every model fits"),
                }
            }
            assert!(self.residency.used(CPU) <= self.residency.budget(CPU));
        }

        fn finish(&mut self) {
            for _ in 0..10_000 {
                let done = self.take(|world| &mut world.running).map(Command::Release);
                let done = done.or_else(|| self.take(|world| &mut world.loading).map(Command::Loaded));
                let done = done.or_else(|| self.take(|world| &mut world.unloading).map(Command::Unloaded));
                let Some(done) = done else { break };
                self.apply(done);
            }
            assert!(self.waiting.is_empty(), "{:?} wait for ever", self.waiting);
        }
    }
}
