use relay::SplitMix;
use serde_json::json;

use super::*;
use crate::model::{Finding, SCHEMA};

fn file(measures: Vec<Measure>) -> ResultFile {
    ResultFile {
        schema: SCHEMA,
        experiment: "render".to_owned(),
        preset: "modern".to_owned(),
        parameters: BTreeMap::from([("file_bytes".to_owned(), json!(1024))]),
        measures,
        ..ResultFile::default()
    }
}

fn seconds(name: &str, values: Vec<f64>) -> Measure {
    Measure::new(name, "s", Better::Lower, values)
}

/// `n` repetitions, normal by the sum of twelve. The seed is in every message.
fn run_of(random: &mut SplitMix, mean: f64, noise: f64, n: usize) -> Vec<f64> {
    let mut normal = || (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
    (0..n).map(|_| mean * (1.0 + noise * normal())).collect()
}

/// Five measures each, nothing different: at 5 % for the whole grid about five of a hundred may be wrong.
#[test]
fn two_runs_of_the_same_are_not_different() {
    let mut alarms = Vec::new();
    for seed in 0..100 {
        let mut random = SplitMix::new(seed);
        let mut run =
            || file((0..5).map(|i| seconds(&format!("m{i}"), run_of(&mut random, 10.0, 0.03, 8))).collect());
        let (a, b) = (run(), run());
        match compare(&a, &b, &Config::default()).verdict {
            ResultVerdict::Same => {}
            ResultVerdict::Better | ResultVerdict::Worse => alarms.push(seed),
            other => panic!("seed {seed}: {other}"),
        }
    }
    assert!(alarms.len() <= 7, "false alarms at seeds {alarms:?}");
}

/// Two measures, of which one changed. Chance hides it once in some hundred pairs of runs.
#[test]
fn a_run_slowed_by_ten_percent_is_found() {
    let mut missed = Vec::new();
    for seed in 0..100 {
        let mut random = SplitMix::new(seed);
        let mut run = |direct: f64| {
            let direct = seconds("direct", run_of(&mut random, direct, 0.03, 8));
            file(vec![direct, seconds("warm", run_of(&mut random, 5.0, 0.03, 8))])
        };
        let (a, b) = (run(10.0), run(11.0));
        let outcome = compare(&a, &b, &Config::default());
        match outcome.measures[0].change {
            MeasureChange::Worse => assert_eq!(outcome.verdict, ResultVerdict::Worse, "seed {seed}"),
            MeasureChange::None => missed.push(seed),
            other => panic!("seed {seed}: {other:?}"),
        }
        let forth = outcome.measures[0].effect.unwrap().relative;
        let back = compare(&b, &a, &Config::default()).measures[0].effect.unwrap().relative;
        assert!(((1.0 + forth) * (1.0 + back) - 1.0).abs() < 1e-9, "seed {seed}: {forth} {back}");
    }
    assert!(missed.len() <= 2, "missed at seeds {missed:?}");
}

#[test]
fn the_table_shows_the_change_and_a_tilde() {
    let steady = vec![5.0, 5.1, 5.2, 5.3, 5.4, 5.5];
    let a = file(vec![
        seconds("direct", vec![10.0, 10.1, 10.2, 10.3, 10.4, 10.5]),
        seconds("warm", steady.clone()),
    ]);
    let b = file(vec![seconds("direct", vec![11.0, 11.1, 11.2, 11.3, 11.4, 11.5]), seconds("warm", steady)]);
    let table = compare(&a, &b, &Config::default()).table;
    let text = crate::markdown::table(&table);
    assert!(
        text.contains("| direct | s | 10.25 [10.00, 10.50] | 11.25 [11.00, 11.50] | +9.8 % worse |"),
        "{text}"
    );
    assert!(text.contains(" | 0.004 |"), "2 x 2/924: {text}");
    assert!(text.contains(r"| warm | s | 5.250 [5.000, 5.500] | 5.250 [5.000, 5.500] | \~ |"), "{text}");
    assert!(text.contains("a change of "), "{text}");
}

#[test]
fn higher_is_better_for_rates() {
    let rate = |values: Vec<f64>| Measure::new("read", "MiB/s", Better::Higher, values);
    let (low, high) = (vec![10.0, 10.1, 10.2, 10.3, 10.4, 10.5], vec![11.0, 11.1, 11.2, 11.3, 11.4, 11.5]);
    let (low, high) = (file(vec![rate(low)]), file(vec![rate(high)]));
    assert_eq!(compare(&low, &high, &Config::default()).verdict, ResultVerdict::Better);
    assert_eq!(compare(&high, &low, &Config::default()).verdict, ResultVerdict::Worse);
    let tolerant = Config { smallest_change: 0.2, ..Config::default() };
    assert_eq!(compare(&high, &low, &tolerant).verdict, ResultVerdict::Same);
}

#[test]
fn too_few_repetitions_say_so() {
    let a = file(vec![seconds("direct", vec![10.0, 10.1, 10.2])]);
    let b = file(vec![seconds("direct", vec![20.0, 20.1, 20.2])]);
    let outcome = compare(&a, &b, &Config::default());
    let why = outcome.verdict.to_string();
    assert_eq!(
        why,
        "not comparable: 3 repetitions are too few to show a difference in one measure; run both again with --repetitions 6"
    );
    assert_eq!(outcome.measures[0].change, MeasureChange::TooFew);
    assert_eq!(outcome.table.rows[0].cells[4], Cell::text("n too small (3 and 3)"));
    assert_eq!(outcome.verdict.exit_code(), 2);
}

/// Thirty questions: six repetitions that differ completely have p = 2/924 x 30 = 0.065.
#[test]
fn many_questions_need_more_repetitions() {
    let run = |shift: f64, n: u32| {
        let values: Vec<f64> = (0..n).map(|i| shift + f64::from(i)).collect();
        file((0..30).map(|i| seconds(&format!("m{i}"), values.clone())).collect())
    };
    let six = compare(&run(10.0, 6), &run(100.0, 6), &Config::default());
    assert!(
        matches!(&six.verdict, ResultVerdict::NotComparable(why) if why.contains("--repetitions 7")),
        "{}",
        six.verdict
    );
    assert_eq!(compare(&run(10.0, 7), &run(100.0, 7), &Config::default()).verdict, ResultVerdict::Worse);
}

#[test]
fn different_experiments_are_not_compared() {
    let a = file(vec![seconds("direct", vec![1.0; 6])]);
    let reason = |change: &dyn Fn(&mut ResultFile)| {
        let mut b = a.clone();
        change(&mut b);
        let outcome = compare(&a, &b, &Config::default());
        assert_eq!(outcome.verdict.exit_code(), 2);
        outcome.verdict.to_string()
    };
    assert!(
        reason(&|b| b.experiment = "probe".to_owned()).contains("A is render (modern), B is probe (modern)")
    );
    assert!(reason(&|b| b.preset = "faithful".to_owned()).contains("different experiments"));
    let parameters = reason(&|b| {
        b.parameters =
            BTreeMap::from([("file_bytes".to_owned(), json!(2048)), ("nodes".to_owned(), json!(3))]);
    });
    assert!(parameters.contains("file_bytes is 1024 in A and 2048 in B, nodes is unset in A and 3 in B"));
    assert!(reason(&|b| b.measures[0].unit = "ms".to_owned()).contains("no measure in common"));
    let broken =
        reason(&|b| b.findings.push(Finding::new(Severity::Invalid, "the cache\n\u{1b}was not cold")));
    assert!(broken.contains("B is INVALID: the cache  was not cold"), "{broken}");
}

#[test]
fn a_parameter_that_the_comparison_is_about_may_differ() {
    let a = file(vec![seconds("direct", vec![1.0; 6])]);
    let mut b = a.clone();
    b.parameters.insert("file_bytes".to_owned(), json!(2048));
    b.fingerprint.insert("kernel".to_owned(), "6.2".to_owned());
    b.measures.push(seconds("warm", vec![1.0; 6]));
    let config = Config { may_differ: BTreeSet::from(["file_bytes".to_owned()]), ..Config::default() };
    let outcome = compare(&a, &b, &config);
    assert_eq!(outcome.verdict, ResultVerdict::Same);
    let notes = outcome.table.notes.join("\n");
    assert!(notes.contains("Set-ups differ in kernel: A unknown, B 6.2."), "{notes}");
    assert!(notes.contains("warm (s) is in B only"), "{notes}");
}

#[test]
fn what_is_another_one_in_each_run_is_no_difference_of_the_set_up() {
    let with = |told: &str, load: &str| {
        let fingerprint = BTreeMap::from([
            ("tier".to_owned(), told.to_owned()),
            ("load before".to_owned(), load.to_owned()),
        ]);
        ResultFile { fingerprint, ..file(vec![seconds("time", vec![1.0; 6])]) }
    };
    let notes = |a: &str, b: &str| {
        let outcome = compare(&with(a, "0.1 0.2 0.3"), &with(b, "3.0 2.0 1.0"), &Config::default());
        outcome.table.notes.into_iter().filter(|note| note.starts_with("Set-ups differ")).collect::<Vec<_>>()
    };
    let one = "/show = file:///tmp/forebay-bench-Ab12Cd/origin; nfs 127.0.0.1:41234; dir /tmp/.tmpXyZ123/c";
    let same = "/show = file:///tmp/forebay-bench-Zz99Yy/origin; nfs 127.0.0.1:50999; dir /tmp/.tmpAAAAAA/c";
    assert_eq!(notes(one, same), Vec::<String>::new());
    let other = one.replace("/origin", "/elsewhere");
    assert_eq!(notes(one, &other).len(), 1, "a place that was chosen is one");
    assert_eq!(notes("nas:2049", "nas:2050").len(), 1, "and so is a port that was");
}
