//! What came of it: a table for people, JSON for programs.

use std::fmt::Write;

use crate::{
    cases::{Bar, Case, Round, Side},
    measure::{Machine, Sample, Spread},
    options::Options,
    run::Shape,
};

/// A `fdatasync` that makes fewer flush requests than this did not reach a disk.
const FLUSHES_PER_SYNC_MIN: f64 = 0.5;

/// A window that is shorter than this share of what was asked for was cut off: the queue ran dry.
const WINDOW_SHARE_MIN: f64 = 0.9;

const LEGEND: &str = "\
CPU, commits and flushes are for each delivery, repeats included. CPU: all threads of this process. Commits: of the loop
by its making, of hapax as its store counts them. Flushes: requests to all disks, by whomever, as the kernel counts them.
Loop and hapax have the same driver, pragmas, codec, messages and runtime; after each run every id had its effect once,
or the figure is void.
";

/// All of one run of the program.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Report {
    machine: Machine,
    settings: Options,
    judged: bool,
    cases: Vec<Finding>,
}

/// What one case has shown.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Finding {
    case: Case,
    title: &'static str,
    bar: Bar,
    shape: Shape,
    /// Ratio of two rates, or CPU microseconds above the hand-written loop: what the bar is about.
    figure: Spread,
    ratio: Spread,
    anchor_to_disk: Option<Spread>,
    to_usual: Option<Spread>,
    /// Whether the must is met; `None`: not judged.
    met: Option<bool>,
    /// Why the figure says nothing.
    void: Vec<String>,
    rounds: Vec<Round>,
}

impl Finding {
    pub(crate) fn of(case: Case, rounds: Vec<Round>, shape: Shape, judged: bool) -> Option<Self> {
        let ratio = Spread::of(rounds.iter().map(Round::ratio))?;
        let anchor_to_disk = Spread::of(rounds.iter().filter_map(Round::anchor_to_disk));
        let to_usual = Spread::of(rounds.iter().filter_map(Round::to_usual));
        let (title, bar) = (case.title(), case.bar());
        let figure = match bar {
            Bar::Overhead { .. } => Spread::of(rounds.iter().map(Round::overhead))?,
            Bar::Ratio { .. } => ratio,
            Bar::ToUsual { .. } => to_usual?,
        };
        let void = void(case, &rounds, &shape, anchor_to_disk);
        let met = judged.then(|| bar.is_met(figure.median));
        Some(Self { case, title, bar, shape, figure, ratio, anchor_to_disk, to_usual, met, void, rounds })
    }

    /// Name of hapax's usual run.
    fn usual(&self) -> Option<&'static str> {
        self.case.usual(&self.shape).map(|(name, _)| name)
    }

    fn verdict(&self, judged: bool) -> String {
        if !self.void.is_empty() {
            return "VOID".into();
        }
        let stretch = self.bar.is_stretch(self.figure.median);
        match (judged, self.bar.is_met(self.figure.median)) {
            (true, true) => if stretch { "met, stretch reached" } else { "met" }.into(),
            (true, false) => "MISSED".into(),
            (false, met) => format!("not judged ({})", if met { "would be met" } else { "would be missed" }),
        }
    }
}

fn void(case: Case, rounds: &[Round], shape: &Shape, anchor_to_disk: Option<Spread>) -> Vec<String> {
    let mut void = Vec::new();
    for (number, round) in (1..).zip(rounds) {
        let sides = [("loop", Some(&round.anchor)), ("hapax", Some(&round.hapax)), ("usual", round.usual.as_ref())];
        for (name, side) in sides {
            let Some(side) = side else { continue };
            if let Some(problem) = side.run.books.problem() {
                void.push(format!("round {number}, {name}: the books do not add up: {problem}"));
            }
            let (seconds, asked) = (side.run.sample.seconds, shape.time.as_secs_f64());
            if seconds < WINDOW_SHARE_MIN * asked {
                void.push(format!(
                    "round {number}, {name}: there was work for {seconds:.1} s only, not for {asked:.0}"
                ));
            }
        }
    }
    if let (Some(floor), Some(found)) = (case.anchor_floor(), anchor_to_disk)
        && found.median < floor
    {
        void.push(format!(
            "the hand-written loop has {:.2} of the raw loop, less than {floor:.2}: it is too slow",
            found.median
        ));
    }
    let flushes = rounds.iter().filter_map(|round| round.disk.as_ref()?.flushes_each());
    if let Some(flushes) = Spread::of(flushes).filter(|flushes| flushes.median < FLUSHES_PER_SYNC_MIN) {
        void.push(format!(
            "fdatasync makes {:.2} flush requests: no disk is reached; choose another --dir",
            flushes.median
        ));
    }
    void
}

impl Report {
    pub(crate) fn new(machine: Machine, settings: Options, cases: Vec<Finding>) -> Self {
        Self { judged: settings.judged(), machine, settings, cases }
    }

    /// Whether no must is missed and no figure is void.
    pub(crate) fn is_good(&self) -> bool {
        self.cases.iter().all(|finding| finding.void.is_empty() && finding.met != Some(false))
    }

    /// The table.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.machine.line());
        let (rounds, seconds) = (self.settings.rounds, self.settings.time.as_secs());
        let quick = if self.judged { "" } else { "; quick: not judged" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{rounds} paired rounds of {seconds} s, medians [smallest-largest]{quick}\n");
        for finding in &self.cases {
            self.write_finding(&mut text, finding);
        }
        text.push_str(LEGEND);
        text
    }

    fn write_finding(&self, text: &mut String, finding: &Finding) {
        let Finding { case, title, bar, figure, ratio, anchor_to_disk, to_usual, void, rounds, .. } = finding;
        let _ = writeln!(text, "{} {title}", case.name());
        let (verdict, figure) = (finding.verdict(self.judged), spread(*figure, 2));
        let _ = match bar {
            Bar::Overhead { must, stretch } => {
                writeln!(text, "    {verdict}: {figure} us above the loop; must <= {must}, stretch {stretch}")
            }
            Bar::Ratio { must, stretch } => {
                writeln!(text, "    {verdict}: {figure} of the loop; must >= {must}, stretch {stretch}")
            }
            Bar::ToUsual { must, stretch } => {
                writeln!(text, "    {verdict}: {figure} of its own usual run; must >= {must}, stretch {stretch}")
            }
        };
        for reason in void {
            let _ = writeln!(text, "    void: {reason}");
        }
        let _ = writeln!(
            text,
            "    {:<14}{:>32}{:>26}{:>10}{:>10}{:>14}",
            "", "deliveries/s", "CPU us", "commits", "flushes", "MiB now, peak"
        );
        write_side(text, "loop", rounds.iter().map(|round| &round.anchor).collect());
        write_side(text, "hapax", rounds.iter().map(|round| &round.hapax).collect());
        let usual = finding.usual().map(|name| format!("hapax {name}")).unwrap_or_default();
        write_side(text, &usual, rounds.iter().filter_map(|round| round.usual.as_ref()).collect());
        let disk: Vec<&Sample> = rounds.iter().filter_map(|round| round.disk.as_ref()).collect();
        write_samples(text, "raw fdatasync", &disk, "");
        if let Some(found) = anchor_to_disk {
            let floor = case.anchor_floor().map(|floor| format!(", at least {floor:.2}")).unwrap_or_default();
            let _ = writeln!(text, "    loop over raw fdatasync: {}{floor}", spread(*found, 2));
        }
        if to_usual.is_some() {
            let _ = writeln!(text, "    hapax over the loop: {}", spread(*ratio, 2));
        }
        let disturbed: u64 = rounds.iter().map(|round| round.hapax.run.books.disturbed).sum();
        if disturbed > 0 {
            let _ = writeln!(text, "    {disturbed} passes of hapax did not go well at once");
        }
        text.push('\n');
    }
}

fn write_side(text: &mut String, name: &str, sides: Vec<&Side>) {
    let samples: Vec<&Sample> = sides.iter().map(|side| &side.run.sample).collect();
    let memory = |of: fn(&Side) -> f64| Spread::of(sides.iter().map(|side| of(side)));
    let memory = memory(|side| side.memory.now_mib).zip(memory(|side| side.memory.peak_mib));
    let memory = memory.map(|(now, peak)| format!("{:.0}, {:.0}", now.median, peak.max)).unwrap_or_default();
    write_samples(text, name, &samples, &memory);
}

fn write_samples(text: &mut String, name: &str, samples: &[&Sample], memory: &str) {
    let (Some(rate), Some(cpu)) =
        (Spread::of(samples.iter().map(|s| s.rate())), Spread::of(samples.iter().map(|s| s.cpu_us())))
    else {
        return;
    };
    let each = |of: fn(&Sample) -> Option<f64>| {
        Spread::of(samples.iter().filter_map(|sample| of(sample)))
            .map_or_else(|| "-".into(), |s| format!("{:.3}", s.median))
    };
    let _ = writeln!(
        text,
        "    {name:<14}{:>32}{:>26}{:>10}{:>10}{memory:>14}",
        spread(rate, 0),
        spread(cpu, 2),
        each(Sample::commits_each),
        each(Sample::flushes_each),
    );
}

fn spread(Spread { median, min, max }: Spread, digits: usize) -> String {
    format!("{median:.digits$} [{min:.digits$}-{max:.digits$}]")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{books::Books, measure::Resident, run::Run};

    /// A side with `deliveries` in `seconds`, of ten that were asked for.
    fn side(deliveries: u64, seconds: f64) -> Side {
        let sample = Sample { seconds, deliveries, cpu_seconds: seconds, ..Sample::default() };
        Side { run: Run { sample, books: Books::default() }, memory: Resident::default() }
    }

    /// Half of the usual run's rate, twice the loop's.
    fn round(seconds: f64) -> Round {
        Round {
            seed: 1,
            disk: None,
            anchor: side(100, 10.0),
            hapax: side((20.0 * seconds) as u64, seconds),
            usual: Some(side(400, 10.0)),
        }
    }

    fn finding(case: Case, round: Round) -> Finding {
        Finding::of(case, vec![round], case.shape(&Options::default()), true).unwrap()
    }

    #[test]
    fn a_bar_is_judged_by_the_ratio_that_it_is_about() {
        assert_eq!(finding(Case::S2, round(10.0)).met, Some(true));
        assert_eq!(finding(Case::Wide, round(10.0)).met, Some(true));
        assert_eq!(finding(Case::C3Random, round(10.0)).met, Some(false));
        assert_eq!(finding(Case::C4, round(10.0)).met, Some(false));
    }

    #[test]
    fn a_window_that_was_cut_off_is_void_and_so_are_books_that_do_not_balance() {
        assert!(finding(Case::Queue, round(10.0)).void.is_empty());
        assert_eq!(finding(Case::Queue, round(8.9)).void.len(), 1);
        let mut unbalanced = round(10.0);
        unbalanced.usual.as_mut().unwrap().run.books.effects = 1;
        assert_eq!(finding(Case::C4, unbalanced).void.len(), 1);
    }
}
