//! All outputs of one rich result: nothing lost, nothing that breaks out of its place.

use bench_report::histogram::Histogram;
use bench_report::model::NamedHistogram;
use bench_report::{compare, csv, html, json, markdown};

use crate::example::{self, HOSTILE};

#[test]
fn the_whole_result_survives_json_and_equals_itself() {
    let file = example::result();
    let text = json::write(&file).unwrap();
    let back = json::read("result.json", text.as_bytes()).unwrap();
    assert_eq!(back, file);
    let outcome = compare::compare(&file, &back, &compare::Config::default());
    assert_eq!(outcome.verdict, compare::ResultVerdict::Same, "{:?}", outcome.table.notes);
}

#[test]
fn every_output_has_the_answer_the_invalid_row_and_the_drift() {
    let file = example::result();
    for text in [markdown::render(&file), html::render(&file)] {
        for part in [
            "WAN RTT (61 % of the time are round trips",
            "the cache was not cold",
            "changed by +19.",
            "R\u{b2} 0.9",
            "p99.9 (ms)",
            "read, direct",
            "Direct Connect (s)",
            "'nfs://nas/a b'",
        ] {
            assert!(
                text.contains(part) || text.contains(&part.replace('\'', "&#39;")),
                "{part:?} is missing"
            );
        }
    }
}

#[test]
fn the_ten_lines_stand_above_all_but_the_sentence_that_leads_and_say_last_what_is_not_known() {
    let file = example::result();
    for text in [markdown::render(&file), html::render(&file)] {
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is missing"));
        assert!(at("not known (no --prices)") < at("WAN RTT (61 % of the time are round trips"));
        assert!(at("bottleneck") < at("not known (no --prices)"), "what is not known comes last");
        assert!(at("time of the job") < at("direct 12."), "parts have their names");
        assert!(text.contains(" s [") && text.contains("], cold "), "and their units and intervals");
    }
    let mut without = file.clone();
    without.answer.clear();
    assert!(!html::render(&without).contains("class=\"lines\""));
}

#[test]
fn a_plot_of_latencies_says_which_curves_it_leaves_out_and_why() {
    let mut file = example::result();
    let one = file.histograms[0].clone();
    file.histograms = (0..10).map(|n| NamedHistogram { name: format!("curve {n}"), ..one.clone() }).collect();
    file.histograms[4] = Histogram::new().to_named("curve 4");
    let page = html::render(&file);
    assert!(
        page.contains("a tangle (their percentiles are in the table): curve 9."),
        "the ninth that has samples"
    );
    assert!(page.contains("as there is no sample: curve 4."));
    file.histograms.truncate(3);
    assert!(!html::render(&file).contains("Not drawn"));
}

#[test]
fn hostile_texts_stay_texts() {
    let file = example::result();
    let page = html::render(&file);
    assert!(!page.contains(HOSTILE) && !page.contains("<script") && !page.contains("<img"));
    assert!(!markdown::render(&file).contains("<script"));
}

#[test]
fn the_page_refers_to_nothing() {
    let page = html::render(&example::result());
    // The one place with a host is the hostile text, escaped.
    for attribute in ["src=", "href=", "url(", "@import", "srcset=", "action="] {
        for (at, _) in page.match_indices(attribute) {
            let rest = &page[at + attribute.len()..];
            let harmless =
                rest.starts_with("\"data:,\"") || rest.starts_with("http://tracker.invalid/x.png&gt;");
            assert!(harmless, "{attribute}{}", rest.chars().take(60).collect::<String>());
        }
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn there_is_a_csv_for_each_table_and_one_for_the_repetitions() {
    let files = csv::files(&example::result());
    let names: Vec<&str> = files.iter().map(|f| f.0.as_str()).collect();
    assert_eq!(names[0], "render-24-nodes-one-frame-each.csv");
    assert_eq!(names[3..], ["latency.csv", "repetitions.csv"]);
    for (name, text) in &files {
        // No cell here holds a comma or a quote but quoted ones.
        let widths: Vec<usize> = text.trim_end().split("\r\n").map(fields).collect();
        assert!(widths.len() > 1 && widths.iter().all(|w| *w == widths[0]), "{name}: {widths:?}");
    }
    assert_eq!(files[4].1.lines().count(), 1 + 13 * 8);
}

/// Fields of a record without line breaks inside.
fn fields(record: &str) -> usize {
    let mut quoted = false;
    1 + record
        .chars()
        .filter(|c| {
            quoted ^= *c == '"';
            *c == ',' && !quoted
        })
        .count()
}
