//! Two results of the same experiment: what changed from A to B, how surely, and one verdict for a CI.
//!
//! Every measure is asked, so the probabilities are corrected for the number of questions (Holm). A measure whose few
//! repetitions could not have shown any difference is said to be too small, not to be the same. One measure that got
//! worse makes the verdict worse, however many got better.

use std::collections::{BTreeMap, BTreeSet};

use crate::distribution::ALPHA;
use crate::format;
use crate::model::{Better, Cell, Measure, ResultFile, Severity, Table, TableRow};
use crate::significance::{self, Effect};
use crate::summary::{coefficient_of_variation, estimate, minimum_detectable_effect};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Parameters that may differ: what the comparison is about. None by default, as a file size that differs by
    /// accident explains every other difference.
    pub may_differ: BTreeSet<String>,
    /// Significant changes smaller than this fraction are not called better or worse. 0 by default: with six to ten
    /// repetitions nothing small is significant.
    pub smallest_change: f64,
}

#[derive(Clone, Debug, strum::Display, PartialEq)]
pub enum ResultVerdict {
    #[strum(to_string = "no significant difference")]
    Same,
    #[strum(to_string = "B is better")]
    Better,
    #[strum(to_string = "B is worse")]
    Worse,
    /// Nothing can be said, and why.
    #[strum(to_string = "not comparable: {0}")]
    NotComparable(String),
}

impl ResultVerdict {
    /// For a CI: 0 same or better, 1 worse, 2 nothing can be said.
    pub fn exit_code(&self) -> u8 {
        match self {
            ResultVerdict::Same | ResultVerdict::Better => 0,
            ResultVerdict::Worse => 1,
            ResultVerdict::NotComparable(_) => 2,
        }
    }
}

/// What comparing one measure said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureChange {
    /// Not significant, or smaller than what counts.
    None,
    Better,
    Worse,
    /// So few repetitions, or so many questions, that no difference could have been found.
    TooFew,
}

pub struct Compared {
    pub name: String,
    pub effect: Option<Effect>,
    /// Corrected for the number of measures; None if the repetitions were too few to ask.
    pub p: Option<f64>,
    pub change: MeasureChange,
}

pub struct ComparedResults {
    pub verdict: ResultVerdict,
    pub measures: Vec<Compared>,
    pub table: Table,
}

const COLUMNS: [&str; 7] =
    ["Measure", "Unit", "A [95 %]", "B [95 %]", "Change", "95 % of change", "p (Holm)"];

pub fn compare(a: &ResultFile, b: &ResultFile, config: &Config) -> ComparedResults {
    let mut table = Table::new(format!("A: {}; B: {}", a.started, b.started), COLUMNS, Vec::new());
    if let Some(why) = mismatch(a, b, config) {
        // Its words are from files.
        let verdict = ResultVerdict::NotComparable(format::one_line(&why));
        return ComparedResults { verdict, measures: Vec::new(), table };
    }
    let pairs = pairs(a, b, &mut table.notes);
    if pairs.is_empty() {
        let why = "the two results have no measure in common".to_owned();
        return ComparedResults { verdict: ResultVerdict::NotComparable(why), measures: Vec::new(), table };
    }
    let measures = ask(&pairs, config);
    table.rows = pairs.iter().zip(&measures).map(|(pair, compared)| row(pair, compared)).collect();
    table.notes.extend(notes(a, b, &pairs, &measures));
    ComparedResults { verdict: verdict(&pairs, &measures), measures, table }
}

type MeasurePair<'a> = (&'a Measure, &'a Measure);

/// Why the two must not be compared at all.
fn mismatch(a: &ResultFile, b: &ResultFile, config: &Config) -> Option<String> {
    if a.experiment != b.experiment || a.preset != b.preset {
        let kind = |f: &ResultFile| format!("{} ({})", f.experiment, f.preset);
        return Some(format!("different experiments: A is {}, B is {}", kind(a), kind(b)));
    }
    for (side, file) in [("A", a), ("B", b)] {
        if let Some(finding) = file.findings.iter().find(|f| f.severity == Severity::Invalid) {
            return Some(format!("{side} is INVALID: {}", finding.text));
        }
    }
    let names: BTreeSet<&String> = a.parameters.keys().chain(b.parameters.keys()).collect();
    let show = |file: &ResultFile, name: &String| {
        file.parameters.get(name).map_or("unset".to_owned(), |v| v.to_string())
    };
    let different: Vec<String> = names
        .into_iter()
        .filter(|name| {
            !config.may_differ.contains(*name) && a.parameters.get(*name) != b.parameters.get(*name)
        })
        .map(|name| format!("{name} is {} in A and {} in B", show(a, name), show(b, name)))
        .collect();
    (!different.is_empty()).then(|| format!("different parameters: {}", different.join(", ")))
}

/// Measures of the same name and unit. What is in one file only goes to the notes.
fn pairs<'a>(a: &'a ResultFile, b: &'a ResultFile, notes: &mut Vec<String>) -> Vec<MeasurePair<'a>> {
    let key = |m: &'a Measure| (m.name.as_str(), m.unit.as_str());
    let of_b: BTreeMap<_, _> = b.measures.iter().rev().map(|m| (key(m), m)).collect();
    let of_a: BTreeSet<_> = a.measures.iter().map(key).collect();
    for measure in b.measures.iter().filter(|m| !of_a.contains(&key(m))) {
        notes.push(format!("{} ({}) is in B only", measure.name, measure.unit));
    }
    let mut asked = BTreeSet::new();
    let mut pairs = Vec::new();
    for measure in &a.measures {
        match of_b.get(&key(measure)) {
            Some(other) if asked.insert(key(measure)) => pairs.push((measure, *other)),
            Some(_) => notes.push(format!("{} is twice in A: its first values count", measure.name)),
            None => notes.push(format!("{} ({}) is in A only", measure.name, measure.unit)),
        }
    }
    pairs
}

/// All measures are asked at once: those with enough repetitions share the correction.
fn ask(pairs: &[MeasurePair], config: &Config) -> Vec<Compared> {
    let could = |pair: &MeasurePair, questions: usize| {
        significance::smallest_p(pair.0.values.len(), pair.1.values.len()) * questions as f64 <= ALPHA
    };
    let test = |pair: &MeasurePair| {
        significance::mann_whitney(&pair.0.values, &pair.1.values).filter(|_| could(pair, 1))
    };
    let tests: Vec<Option<f64>> = pairs.iter().map(test).collect();
    let raw: Vec<f64> = tests.iter().copied().flatten().collect();
    let mut corrected = significance::holm(&raw).into_iter();
    let questions = raw.len();
    let compared = pairs.iter().zip(tests).map(|(pair, test)| {
        let p = test.and_then(|_| corrected.next());
        let effect = significance::effect(&pair.0.values, &pair.1.values);
        let change = match p {
            Some(p) if p <= ALPHA => direction(pair.0.better, effect, config),
            Some(_) if could(pair, questions) => MeasureChange::None,
            _ => MeasureChange::TooFew,
        };
        Compared { name: pair.0.name.clone(), effect, p, change }
    });
    compared.collect()
}

fn direction(better: Better, effect: Option<Effect>, config: &Config) -> MeasureChange {
    let relative = effect.map_or(0.0, |e| e.relative);
    if relative == 0.0 || relative.abs() < config.smallest_change {
        return MeasureChange::None;
    }
    match (better, relative > 0.0) {
        (Better::Higher, true) | (Better::Lower, false) => MeasureChange::Better,
        (Better::Higher, false) | (Better::Lower, true) => MeasureChange::Worse,
    }
}

fn verdict(pairs: &[MeasurePair], measures: &[Compared]) -> ResultVerdict {
    let any = |change| measures.iter().any(|m| m.change == change);
    if any(MeasureChange::Worse) {
        ResultVerdict::Worse
    } else if any(MeasureChange::Better) {
        ResultVerdict::Better
    } else if any(MeasureChange::None) {
        ResultVerdict::Same
    } else {
        let least = pairs.iter().map(|p| p.0.values.len().min(p.1.values.len())).min().unwrap_or(0);
        let needed = repetitions_needed(pairs.len());
        ResultVerdict::NotComparable(format!(
            "{least} repetitions are too few to show a difference in {}; run both again with --repetitions {needed}",
            if pairs.len() == 1 { "one measure".to_owned() } else { format!("{} measures", pairs.len()) },
        ))
    }
}

/// The smallest n of both runs with which one of so many measures can be significant; six at least, for an interval.
fn repetitions_needed(questions: usize) -> usize {
    let enough = |n: &usize| significance::smallest_p(*n, *n) * questions as f64 <= ALPHA;
    (crate::summary::REPETITIONS_MIN..100).find(enough).unwrap_or(100)
}

fn row(pair: &MeasurePair, compared: &Compared) -> TableRow {
    let (a, b) = pair;
    let interval = match compared.effect.and_then(|e| e.interval) {
        Some((low, high)) => {
            Cell::text(format!("{} to {}", format::percent_change(low), format::percent_change(high)))
        }
        None => Cell::missing("too few repetitions for an interval"),
    };
    let size = compared.effect.map_or(String::new(), |e| format::percent_change(e.relative));
    let change = match compared.change {
        MeasureChange::None => Cell::text("~"),
        MeasureChange::Better => Cell::text(format!("{size} better")),
        MeasureChange::Worse => Cell::text(format!("{size} worse")),
        MeasureChange::TooFew => {
            Cell::text(format!("n too small ({} and {})", a.values.len(), b.values.len()))
        }
    };
    let p = match compared.p {
        Some(p) => Cell::text(format::probability(p)),
        None => Cell::missing("too few repetitions to ask"),
    };
    let (name, unit) = (Cell::text(&a.name), Cell::text(&a.unit));
    TableRow::new(vec![name, unit, estimate(&a.values), estimate(&b.values), change, interval, p])
}

fn notes(a: &ResultFile, b: &ResultFile, pairs: &[MeasurePair], measures: &[Compared]) -> Vec<String> {
    let mut notes = vec![
        "Change: Hodges-Lehmann ratio of B to A; p: Mann-Whitney, two-sided, corrected for all measures; ~: not \
         significant at 5 %."
            .to_owned(),
    ];
    let detectable = |(a, b): &MeasurePair| {
        let noise = coefficient_of_variation(&a.values)?.max(coefficient_of_variation(&b.values)?);
        minimum_detectable_effect(noise, a.values.len().min(b.values.len()))
    };
    let unchanged = pairs.iter().zip(measures).filter(|(_, m)| m.change == MeasureChange::None);
    if let Some(largest) = unchanged.filter_map(|(pair, _)| detectable(pair)).reduce(f64::max) {
        notes.push(format!(
            "Where it says ~, a change of {:.1} % would have been found four times out of five (before the correction).",
            largest * 100.0
        ));
    }
    if a.seed != b.seed {
        notes.push(format!("The seeds differ: {} and {}.", a.seed, b.seed));
    }
    let names: BTreeSet<&String> = a.fingerprint.keys().chain(b.fingerprint.keys()).collect();
    for name in names.into_iter().filter(|name| !MOMENTARY.contains(&name.as_str())) {
        let [in_a, in_b] = [a, b].map(|file| file.fingerprint.get(name).map(String::as_str));
        if in_a.map(lasting) != in_b.map(lasting) {
            let [in_a, in_b] = [in_a, in_b].map(|told| told.unwrap_or("unknown"));
            notes.push(format!("Set-ups differ in {name}: A {in_a}, B {in_b}."));
        }
    }
    notes
}

/// Parts of a fingerprint that belong to a moment, and not to a set-up.
const MOMENTARY: [&str; 2] = ["load before", "clock error"];

/// Without what is another one in each run: ports that were free, and the random ends of temporary names.
fn lasting(told: &str) -> String {
    let mut out = String::with_capacity(told.len());
    for word in told.split_inclusive(SEPARATORS) {
        let (name, separator) = word.split_at(word.trim_end_matches(SEPARATORS).len());
        let name = match name.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok_and(|port| port >= EPHEMERAL) => {
                format!("{host}:*")
            }
            _ => name.to_owned(),
        };
        let random = |end: &str| end.len() == RANDOM && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let name = match name.rsplit_once('-') {
            Some((start, end)) if random(end) => format!("{start}-*"),
            _ if name.strip_prefix(".tmp").is_some_and(random) => ".tmp*".to_owned(),
            _ => name,
        };
        out.push_str(&name);
        out.push_str(separator);
    }
    out
}

/// What stands between the words of a part of a fingerprint.
const SEPARATORS: [char; 8] = [' ', '/', ',', ';', '=', '"', '?', '&'];
/// Ports from here on are given out as they are free, on common systems.
const EPHEMERAL: u16 = 32_768;
const RANDOM: usize = 6;

#[cfg(test)]
mod tests;
