// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sweep of one act (a tested operation). A worker process is single-stepped through the act
//! once, and `judge.rs` checks the recorded contents of both link files. Then as many workers as
//! requested are really killed.

use super::act::Act;
use super::conversation::{Conversation, is_reported};
use super::images::Images;
use super::judge::{Findings, Judge};
use super::stage::Stage;
use super::stepper::{Stepper, Stop};
use super::worker;
use partywall_testkit::variable;
use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

/// Settings of a sweep: how thoroughly each operation is tested.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether the test single-steps every instruction of the operations that open a link.
    /// Otherwise the test single-steps only between those successive system calls between which a
    /// link file changes, and lets the worker run at full speed elsewhere.
    pub is_whole: bool,
    /// Maximum number of images of the link files that are checked. They are evenly chosen,
    /// including the first and the last.
    pub images: usize,
    /// Number of workers that are really killed: up to half of them right after a file has changed,
    /// the others after evenly distributed instructions.
    pub kills: usize,
}

/// Counters of the sweep of one operation, which the test prints and compares with minimum values.
#[derive(Debug)]
pub struct Figures {
    act: Act,
    pub boundaries: u64,
    pub images: usize,
    pub judged: usize,
    before: u64,
    after: u64,
    pub kills: usize,
    killed_before: u64,
    killed_after: u64,
    time: Duration,
}

impl Settings {
    pub fn from_variables() -> Self {
        match variable("PARTYWALL_SWEEP_KILLS") {
            Some(kills) => {
                Self { is_whole: true, images: usize::MAX, kills: kills.parse().expect("a number") }
            }
            None => Self { is_whole: false, images: 24, kills: 2 },
        }
    }
}

/// Runs the sweep of one operation, which a worker process makes instruction by instruction.
///
/// # Errors
/// The text names the violated rule, and the instruction after which the violation was found.
pub fn run(act: Act, settings: Settings) -> Result<Figures, String> {
    let start = Instant::now();
    let path = if settings.is_whole || !act.opens() {
        Path::step(act, None)?
    } else {
        Path::step(act, Some(&Path::calls(act)?))?
    };
    let images = &path.images;
    let chosen = spread(images.count(), settings.images);
    let steps = images.steps();
    let mut judge = Judge::new(act, false);
    images.each(&chosen, |index, image| {
        let judged = judge.image(image, index + 1 == images.count());
        judged.map_err(|why| format!("killed at boundary {}: {why}", steps[index]))
    })?;
    let mut figures = Figures {
        act,
        boundaries: path.boundaries,
        images: images.count(),
        judged: chosen.len(),
        before: judge.before,
        after: judge.after,
        kills: 0,
        killed_before: 0,
        killed_after: 0,
        time: Duration::ZERO,
    };
    let half = settings.kills.div_ceil(2);
    let mut moments: Vec<u64> =
        spread(steps.len(), half).into_iter().map(|index| steps[index]).collect();
    let any = usize::try_from(path.boundaries).map_err(|_| "too many")?;
    let rest = settings.kills - moments.len();
    moments.extend(spread(any, rest).into_iter().map(|step| step as u64));
    let mut judge = Judge::new(act, true);
    for step in moments {
        let moment = path.moment(step);
        let killed = kill(act, moment, &mut judge);
        killed.map_err(|why| format!("SIGKILL at {moment:?}: {why}"))?;
        figures.kills += 1;
    }
    (figures.killed_before, figures.killed_after) = (judge.before, judge.after);
    figures.time = start.elapsed();
    Ok(figures)
}

/// The recorded course of a tested operation: the contents of both link files after each
/// instruction, and the system calls.
struct Path {
    images: Images,
    boundaries: u64,
    /// For each system call that the worker made in the tested operation, the number of
    /// instructions up to and including the call.
    calls: Vec<u64>,
}

/// A point in a tested operation, given as the number of system calls before the point and of
/// instructions after the last of those calls. Another worker process is run to the same point and
/// killed there.
#[derive(Clone, Copy, Debug)]
struct Moment {
    calls: u64,
    steps: u64,
}

impl Path {
    /// Finds the parts of a tested operation (between two successive system calls) in which a link
    /// file changes. Each part is named by the number of system calls before it.
    fn calls(act: Act) -> Result<HashSet<u64>, String> {
        let (stage, stepper) = Stage::set(act)?;
        let mut images = Images::new(stage.files()).map_err(text)?;
        let mut changing = HashSet::new();
        for calls in 0..STEPS_MAX {
            let is_over = stepper.to_call()? == Stop::Marked;
            if images.check(calls, false).map_err(text)? {
                changing.insert(calls);
            }
            if is_over || stepper.through_call(&mut || stage.answer())? == Stop::Marked {
                return Ok(changing);
            }
            images.check(calls, act.opens()).map_err(text)?;
        }
        Err(ENDLESS.to_owned())
    }

    /// Makes the worker process execute the whole tested operation. If `behind` is given,
    /// single-steps only after the system calls whose numbers `behind` contains, and lets the
    /// worker run at full speed elsewhere.
    fn step(act: Act, behind: Option<&HashSet<u64>>) -> Result<Self, String> {
        let (stage, stepper) = Stage::set(act)?;
        let images = Images::new(stage.files()).map_err(text)?;
        let mut path = Self { images, boundaries: 1, calls: Vec::new() };
        while path.boundaries < STEPS_MAX {
            let mut has_moved = false;
            let mut answer = || {
                has_moved = true;
                stage.answer();
            };
            let is_stepped = behind.is_none_or(|calls| calls.contains(&(path.calls.len() as u64)));
            let (stop, is_call) = if is_stepped {
                stepper.step(&mut answer)?
            } else if stepper.to_call()? == Stop::Marked {
                (Stop::Marked, false)
            } else {
                (stepper.through_call(&mut answer)?, true)
            };
            if stop == Stop::Marked {
                return Ok(path);
            }
            path.images.check(path.boundaries, has_moved).map_err(text)?;
            if is_call {
                path.calls.push(path.boundaries);
            }
            path.boundaries += 1;
        }
        Err(ENDLESS.to_owned())
    }

    fn moment(&self, boundary: u64) -> Moment {
        let calls = self.calls.partition_point(|done| *done <= boundary);
        let since = calls.checked_sub(1).map_or(0, |last| self.calls[last]);
        Moment { calls: calls as u64, steps: boundary - since }
    }
}

/// Kills a worker process at the instruction that `moment` names. Then a new process opens the
/// worker's link file, and exchanges the remaining messages with the living peer. Returns whether
/// the tested operation has taken effect.
fn kill(act: Act, moment: Moment, judge: &mut Judge) -> Result<bool, String> {
    let (stage, stepper) = Stage::set(act)?;
    lead(&stage, &stepper, moment)?;
    stepper.kill();
    let next = stage.successor();
    let link = &stage.peer.link;
    let mut conversation = Conversation::new(link, false);
    let mut failed = None;
    let mut said = None;
    stage.until("the two go on", || {
        failed = failed.take().or_else(|| conversation.turn().err());
        said = said.take().or_else(|| worker::said(stage.ground.path()));
        failed.is_some() || (said.is_some() && conversation.is_over())
    })?;
    drop(next);
    if let Some(why) = failed {
        return Err(why);
    }
    let (mut view, mut got) = said.ok_or("the next owner says nothing")??;
    is_reported(link, view.epoch)?;
    if !matches!(link.epoch(), Ok(epoch) if epoch == view.epoch) {
        return Err(format!("epoch {} there, {:?} here", view.epoch, link.epoch()));
    }
    let here = conversation.got();
    view.to_peer = here.iter().map(|got| got.number).collect();
    got.extend(here);
    judge.may_be(&Findings { view, got })
}

/// Runs a worker process to the instruction of its tested operation that `moment` names. Stops at
/// the end of that operation if the worker makes fewer system calls or instructions.
fn lead(stage: &Stage, stepper: &Stepper, moment: Moment) -> Result<(), String> {
    for _ in 0..moment.calls {
        if stepper.to_call()? == Stop::Marked
            || stepper.through_call(&mut || stage.answer())? == Stop::Marked
        {
            return Ok(());
        }
    }
    for _ in 0..moment.steps {
        if stepper.step(&mut || stage.answer())?.0 == Stop::Marked {
            return Ok(());
        }
    }
    Ok(())
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// At most `most` numbers below `count`, evenly spread, including 0 and the highest.
fn spread(count: usize, most: usize) -> Vec<usize> {
    let most = most.min(count);
    match most {
        0 => Vec::new(),
        1 => vec![count / 2],
        _ => (0..most).map(|index| index * (count - 1) / (most - 1)).collect(),
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<13}{:>8} boundaries {:>6} images {:>6} judged ({} before, {} after) {:>5} kills ({} before, {} after) {:>6.1} s",
            self.act.to_string(),
            self.boundaries,
            self.images,
            self.judged,
            self.before,
            self.after,
            self.kills,
            self.killed_before,
            self.killed_after,
            self.time.as_secs_f64()
        )
    }
}

/// Maximum number of instructions of a tested operation; the test fails at a longer one, as if it
/// never ended.
const STEPS_MAX: u64 = 5_000_000;
const ENDLESS: &str = "the act does not end";
