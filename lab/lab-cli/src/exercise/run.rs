//! The main loop: it draws operations, keeps a window of them in flight, and records their results.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use remora_check::Step;
use remora_store::Random;

use super::progress::Progress;
use super::record::Record;
use super::{Answer, Draw, ExerciseArgs, Store};
use remora_options::print;

/// The maximum number of clients of a process in a history.
const LANES: u32 = 1 << 10;
/// The number of bits for the values that a process may write under all keys together.
const VALUES: u32 = 40;
/// The maximum time of an operation before its connection is broken.
const PATIENCE: Duration = Duration::from_secs(3);
/// The maximum time of the last operations.
const LAST: Duration = Duration::from_secs(20);
/// Time without a completed operation after which a warning is printed, and after which the exercise ends. A
/// child process does not end then, since its parent kills servers on purpose.
const QUIET: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(10);
/// Time to sleep when there is nothing to do.
const PAUSE: Duration = Duration::from_micros(50);
/// The interval of falsified reads of a lying exercise, in reads.
const LIES: u64 = 8;

/// An operation that was recorded in the history.
struct Asked {
    lane: u32,
    steps: Vec<Step>,
    asked: Instant,
    /// Time at which the store accepted the operation.
    since: Instant,
}

struct Exercise<'a> {
    args: &'a ExerciseArgs,
    draw: Draw,
    random: Random,
    record: Record,
    /// The clients of the history without an operation.
    free: Vec<u32>,
    /// The operations that the store has not accepted yet.
    asked: VecDeque<Asked>,
    /// The operations in the store, by their slot there.
    running: BTreeMap<usize, Asked>,
    /// The last value that was written.
    value: u64,
    /// The number of keys read at the end, and the keys whose read must be repeated.
    read: u64,
    again: Vec<u64>,
    started: Instant,
    drawn: u64,
    /// The operations of the current burst that have yet to be drawn.
    burst: u16,
    over: Option<Instant>,
    /// The time of the last progress, and true if a warning about the silence was printed.
    heard: Instant,
    has_warned: bool,
    progress: Option<Progress>,
    /// Set when standard input has ended.
    stop: Arc<AtomicBool>,
    /// The first value that was found under each key.
    memory: BTreeMap<u64, Option<u64>>,
}

/// Exercises a store with operations that `draw` draws. At the end each key is read once more, so that a
/// lost write is detected.
///
/// # Errors
/// The errors of the store and of the file.
/// The store's, and the file's.
pub(crate) fn run(args: &ExerciseArgs, draw: Draw, store: &mut impl Store) -> Result<()> {
    let mut exercise = Exercise::new(args, draw)?;
    let mut ended = Vec::new();
    let mut lost = 0u64;
    let mut silent = Ok(());
    while !exercise.is_done() && silent.is_ok() {
        let began = exercise.begin(store)?;
        let mut lives = store.turn(&mut ended)?;
        let answered = !ended.is_empty();
        ended.drain(..).try_for_each(|(place, answer)| exercise.end(place, answer))?;
        if lives && exercise.waits_too_long() {
            lives = store.give_up();
        }
        if !lives {
            exercise.forget_running()?;
            lost += 1;
        }
        silent = exercise.hear(answered, store);
        exercise.say(false);
        if !began && !answered {
            std::thread::sleep(PAUSE);
        }
    }
    if !exercise.is_at_rest() {
        eprintln!("not every key was read at the end: a write that is lost may go unseen");
    }
    exercise.forget_running()?;
    exercise.say(true);
    let Record { invoked, failed, unknown, .. } = exercise.record;
    let sum = format!(
        "{invoked} operations: {failed} refused, {unknown} of unknown outcome; {lost} connections lost"
    );
    match args.every {
        None => print::line(sum),
        // The summary goes to the standard error if standard output has the lines of progress.
        Some(_) => eprintln!("{sum}"),
    }
    silent
}

impl<'a> Exercise<'a> {
    fn new(args: &'a ExerciseArgs, draw: Draw) -> Result<Exercise<'a>> {
        let stop = Arc::new(AtomicBool::new(false));
        if args.child {
            let stop = stop.clone();
            let wait = move || {
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
                stop.store(true, Ordering::Relaxed);
            };
            std::thread::Builder::new().name("stdin".into()).spawn(wait).context("a thread")?;
        }
        Ok(Exercise {
            args,
            draw,
            random: Random::new(args.seed ^ (u64::from(args.number) << 32)),
            record: Record::open(args.history.as_deref(), args.number * LANES)?,
            free: (0..u32::from(args.window)).rev().collect(),
            asked: VecDeque::new(),
            running: BTreeMap::new(),
            value: u64::from(args.number) << VALUES,
            read: 0,
            again: Vec::new(),
            started: Instant::now(),
            drawn: 0,
            burst: 0,
            over: None,
            heard: Instant::now(),
            has_warned: false,
            progress: args.every.map(Progress::new).transpose()?,
            stop,
            memory: BTreeMap::new(),
        })
    }

    /// Returns whether all operations have ended, or the time to wait for them is over.
    fn is_done(&self) -> bool {
        self.over.is_some_and(|since| self.is_at_rest() || since.elapsed() > LAST)
    }

    /// Returns whether all operations have ended and every key was read at the end.
    fn is_at_rest(&self) -> bool {
        let read = self.read == self.args.keys && self.again.is_empty();
        read && self.asked.is_empty() && self.running.is_empty()
    }

    /// Reads the clock, and starts the end of the exercise when it is time, also while no operation ends.
    fn look_at_clock(&mut self) -> f64 {
        let seconds = self.started.elapsed().as_secs_f64();
        let enough = seconds >= self.args.seconds as f64 || self.args.operations == Some(self.drawn);
        if self.over.is_none() && (enough || self.stop.load(Ordering::Relaxed)) {
            self.over = Some(Instant::now());
        }
        seconds
    }

    /// Ends the exercise if the store is silent for too long, after a warning.
    fn hear(&mut self, answered: bool, store: &impl Store) -> Result<()> {
        self.look_at_clock();
        if answered || self.args.child || (self.asked.is_empty() && self.running.is_empty()) {
            (self.heard, self.has_warned) = (Instant::now(), false);
            return Ok(());
        }
        let silence = self.heard.elapsed();
        let most = SILENCE.as_secs();
        if silence > SILENCE {
            bail!("nothing was answered for {most} seconds: {}", store.silence());
        }
        if silence > QUIET && !self.has_warned {
            self.has_warned = true;
            eprintln!("waiting for an answer, {most} seconds at most: {}", store.silence());
        }
        Ok(())
    }

    /// Prints the progress if it is wanted and due, or if this is the last time.
    fn say(&mut self, last: bool) {
        if let Some(progress) = &mut self.progress
            && (last || progress.is_due())
        {
            let waiting = self.asked.iter().chain(self.running.values());
            progress.say(waiting.map(|waiting| waiting.asked).min());
        }
    }

    /// Draws the next operation if it is due.
    fn next(&mut self) -> Option<Vec<Step>> {
        let seconds = self.look_at_clock();
        if self.over.is_some() {
            return self.next_of_all().map(|key| vec![Step::Read { key, value: None }]);
        }
        if self.burst == 0 {
            let rate = self.args.rate.map_or(f64::INFINITY, f64::from);
            let at_rest = self.asked.is_empty() && self.running.is_empty();
            if rate.is_finite() && !(at_rest && self.drawn as f64 <= seconds * rate) {
                return None;
            }
            self.burst = self.args.window;
        }
        self.burst -= 1;
        self.drawn += 1;
        Some((self.draw)(&mut self.random, self.args.keys, &mut self.value))
    }

    /// Returns the next key to read at the end.
    fn next_of_all(&mut self) -> Option<u64> {
        if let Some(key) = self.again.pop() {
            return Some(key);
        }
        let key = self.read;
        self.read += u64::from(key < self.args.keys);
        (key < self.args.keys).then_some(key)
    }

    /// Starts as many operations as the store accepts. Returns true if one has started.
    fn begin(&mut self, store: &mut impl Store) -> Result<bool> {
        while let Some(lane) = self.free.last().copied() {
            let Some(steps) = self.next() else { break };
            self.free.pop();
            self.record.invoke(lane, &steps)?;
            let now = Instant::now();
            self.asked.push_back(Asked { lane, steps, asked: now, since: now });
        }
        let mut began = false;
        while let Some(asked) = self.asked.front()
            && let Some(place) = store.begin(&asked.steps)?
        {
            let asked = self.asked.pop_front().context("the first one")?;
            self.running.insert(place, Asked { since: Instant::now(), ..asked });
            began = true;
        }
        Ok(began)
    }

    fn end(&mut self, place: usize, answer: Answer) -> Result<()> {
        let asked = self.running.remove(&place).context("an operation ended that was not started")?;
        self.free.push(asked.lane);
        match answer {
            Answer::Done(mut steps) => {
                if self.args.liar {
                    steps.iter_mut().for_each(|step| self.lie(step));
                }
                self.progress.iter_mut().for_each(|progress| progress.done(asked.asked));
                self.record.ok(asked.lane, &steps)
            }
            Answer::Refused => {
                if self.over.is_some() {
                    self.again.extend(
                        asked.steps.iter().filter(|step| matches!(step, Step::Read { .. })).map(Step::key),
                    );
                }
                self.progress.iter_mut().for_each(Progress::refused);
                self.record.fail(asked.lane)
            }
            Answer::Unknown => self.forget(asked.lane),
        }
    }

    /// Occasionally replaces the value of a read by the first value that was read under the key.
    fn lie(&mut self, step: &mut Step) {
        if let Step::Read { key, value } = step {
            let first = *self.memory.entry(*key).or_insert(*value);
            if self.random.below(LIES) == 0 {
                *value = first;
            }
        }
    }

    fn waits_too_long(&self) -> bool {
        self.running.values().any(|asked| asked.since.elapsed() > PATIENCE)
    }

    /// Records that the results of all operations in flight are unknown.
    fn forget_running(&mut self) -> Result<()> {
        for asked in std::mem::take(&mut self.running).into_values() {
            self.free.push(asked.lane);
            self.forget(asked.lane)?;
        }
        Ok(())
    }

    /// Records that the result of this client's operation is unknown.
    fn forget(&mut self, lane: u32) -> Result<()> {
        self.progress.iter_mut().for_each(Progress::unknown);
        self.record.info(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_check::{History, Kind, linearizable};

    /// A test store whose registers answer in the order of the requests, one turn later.
    #[derive(Default)]
    struct Registers {
        values: BTreeMap<u64, u64>,
        asked: VecDeque<(usize, Vec<Step>)>,
        next: usize,
        /// The turns until the connection breaks.
        breaks: u32,
    }

    impl Store for Registers {
        fn begin(&mut self, steps: &[Step]) -> Result<Option<usize>> {
            self.next += 1;
            self.asked.push_back((self.next, steps.to_vec()));
            Ok(Some(self.next))
        }

        fn turn(&mut self, ended: &mut Vec<(usize, Answer)>) -> Result<bool> {
            self.breaks = self.breaks.wrapping_sub(1);
            if self.breaks == 0 {
                self.asked.clear();
                return Ok(false);
            }
            let Some((place, mut steps)) = self.asked.pop_front() else { return Ok(true) };
            for step in &mut steps {
                match step {
                    Step::Read { key, value } => *value = self.values.get(key).copied(),
                    Step::Write { key, value } => drop(self.values.insert(*key, *value)),
                    Step::Delete { key, found } => *found = Some(self.values.remove(key).is_some()),
                }
            }
            ended.push((place, Answer::Done(steps)));
            Ok(true)
        }

        fn give_up(&mut self) -> bool {
            false
        }

        fn silence(&self) -> String {
            "registers never are silent".to_owned()
        }
    }

    fn exercise(liar: bool, breaks: u32) -> History {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("history.jsonl");
        let args = ExerciseArgs {
            history: Some(history.clone()),
            every: None,
            keys: 3,
            window: 4,
            number: 7,
            seed: 1,
            seconds: 1000,
            operations: Some(500),
            rate: None,
            child: false,
            liar,
        };
        run(&args, super::super::removable, &mut Registers { breaks, ..Registers::default() }).unwrap();
        let file = std::fs::File::open(&history).unwrap();
        History::read(std::io::BufReader::new(file)).unwrap()
    }

    #[test]
    fn what_is_recorded_is_what_happened_and_a_lie_is_found() {
        let history = exercise(false, 0);
        linearizable(&history).unwrap();
        assert_eq!(history.events.len(), 2 * (500 + 3), "all operations, and a final read of each key");
        assert!(history.events.iter().all(|event| event.client / LANES == 7));
        assert!(linearizable(&exercise(true, 0)).is_err());
    }

    #[test]
    fn what_a_broken_connection_takes_with_it_is_unknown() {
        let history = exercise(false, 50);
        linearizable(&history).unwrap();
        let unknown = history.events.iter().filter(|event| event.kind == Kind::Info).count();
        assert!((1..=4).contains(&unknown), "{unknown}");
    }
}
