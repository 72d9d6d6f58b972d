//! From an experiment to what a user gets: the result file, printed and written.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

use bench_load::{Cleanup, Verification};
use bench_report::bottleneck::Bottleneck;
use bench_report::model::SCHEMA;
use bench_report::{
    Better, Finding, Measure, ResultFile, Severity, compare, csv, html, json as json_file, markdown, report,
};
use clap::Args;
use quantity::ByteRate;
use serde_json::{Value, json};
use types::{Error, Result};

use crate::{CommonArgs, OutputArgs, fingerprint, refuse};

/// The end of the titles of tables and plots that were measured with emulated limits.
const EMULATED: &str = " (emulated limits)";

pub struct ResultBuilder {
    pub file: ResultFile,
    start: Instant,
}

impl ResultBuilder {
    pub fn new(
        experiment: &str,
        title: impl Into<String>,
        common: &CommonArgs,
        repetitions: u32,
    ) -> ResultBuilder {
        let preset = if common.faithful { "faithful" } else { "modern" };
        let mut draft = ResultBuilder::without_common(experiment, title, preset, common.seed);
        draft.parameter("scale", common.scale.factor());
        draft.parameter("repetitions", repetitions);
        if let Some(admin) = common.admin {
            match fingerprint::of_tier(admin) {
                Ok(told) => draft.described("tier", Some(told)),
                Err(e) => draft.warning(e.to_string()),
            }
        }
        draft
    }

    pub fn without_common(
        experiment: &str,
        title: impl Into<String>,
        preset: &str,
        seed: u64,
    ) -> ResultBuilder {
        let file = ResultFile {
            schema: SCHEMA,
            experiment: experiment.to_owned(),
            title: title.into(),
            preset: preset.to_owned(),
            started: fingerprint::timestamp(SystemTime::now()),
            command: command(),
            seed,
            fingerprint: fingerprint::of_this_machine(),
            ..ResultFile::default()
        };
        ResultBuilder { file, start: Instant::now() }
    }

    /// In the fingerprint, as far as it is known.
    pub fn described(&mut self, what: &str, told: Option<String>) {
        self.file.fingerprint.extend(told.map(|told| (what.to_owned(), told)));
    }

    /// The name has the unit in it.
    pub fn parameter(&mut self, name: &str, value: impl Into<Value>) {
        self.file.parameters.insert(name.to_owned(), value.into());
    }

    pub fn parameters<const N: usize>(&mut self, all: [(&str, Value); N]) {
        self.file.parameters.extend(all.map(|(name, value)| (name.to_owned(), value)));
    }

    pub fn verdict(&mut self, text: impl Into<String>) {
        self.file.findings.push(Finding::verdict(text));
    }

    /// What limits `what`: an answer only if it was found.
    pub fn limit(&mut self, what: impl std::fmt::Display, told: &Bottleneck) {
        let severity = if told.limit.is_some() { Severity::Verdict } else { Severity::Note };
        self.file.findings.push(Finding::new(severity, format!("{what}: {told}")));
    }

    pub fn warning(&mut self, text: impl Into<String>) {
        self.file.findings.push(Finding::warning(text));
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.file.findings.push(Finding::new(Severity::Note, text));
    }

    /// Bytes that are not what was written make the whole result one that must not be believed: what else was moved or
    /// mixed up is not known.
    pub fn wrong_bytes(&mut self, found: &Verification) {
        if found.wrong() > 0 {
            let first = found.told.first().map(|at| format!("; the first: {at}")).unwrap_or_default();
            let (wrong, stale) = (found.wrong(), found.stale);
            let text =
                format!("{wrong} reads gave bytes that were not written there, {stale} of them stale{first}");
            self.file.findings.push(Finding::new(Severity::Invalid, text));
        }
    }

    /// What the removal of our own files came to; None: they were to stay.
    pub fn cleaned(&mut self, done: Result<Option<Cleanup>>) {
        match done {
            Ok(None) => self.note("the files are left in place, as asked for"),
            Ok(Some(done)) if done.complete() => self.note(cleaned(&done)),
            Ok(Some(done)) => self.warning(cleaned(&done)),
            Err(e) => self.warning(format!("cleanup failed: {e}")),
        }
    }

    /// For comparisons, unless its row must not be believed.
    pub fn measure(
        &mut self,
        name: impl Into<String>,
        unit: &str,
        better: Better,
        values: Vec<f64>,
        invalid: &[String],
    ) {
        let measure = Measure::new(name, unit, better, values);
        if invalid.is_empty() {
            self.file.measures.push(measure);
        } else {
            self.note(format!("{}: INVALID, so nothing can be compared with it", measure.name));
        }
    }

    /// The line to the storage that is asked for.
    pub fn line(&mut self, rtt: Duration, rate: Option<ByteRate>) {
        self.parameter("rtt_ms", rtt.as_secs_f64() * 1000.0);
        self.parameter("rate_bytes_per_second", rate.map_or(0, |rate| rate.bytes_per_second()));
    }

    pub fn finish(mut self) -> ResultFile {
        self.file.seconds = self.start.elapsed().as_secs_f64();
        let target = self.file.parameters.get("target").and_then(Value::as_str);
        self.described("target", target.and_then(fingerprint::of_target));
        label_emulated(&mut self.file);
        if !self.file.answer.is_empty() {
            let validity = report::validity(&self.file);
            self.file.answer.push(validity);
        }
        let mut rows = self.file.tables.iter().flat_map(|table| &table.rows);
        if rows.any(|row| !row.invalid.is_empty()) {
            for finding in self.file.findings.iter_mut().filter(|f| f.severity == Severity::Verdict) {
                finding.text = format!("with INVALID rows, so not proved: {}", finding.text);
            }
        }
        self.file
    }
}

pub fn cleaned(done: &Cleanup) -> String {
    let what = format!(
        "cleanup: {} files and {} directories removed in {:.1} s",
        done.files, done.directories, done.seconds
    );
    if done.complete() {
        return what;
    }
    let first = done.errors.told.first().map(|e| format!(", the first: {e}")).unwrap_or_default();
    let (left, count) = (done.left_told.join(", "), done.errors.count);
    format!("{what}; left: {} names that are not ours ({left}); {count} errors{first}", done.left)
}

/// Where limits of a service were put in front of the storage, every table and plot of ours says so: no such service was
/// measured.
fn label_emulated(file: &mut ResultFile) {
    let limits = file.parameters.get("limits").and_then(Value::as_str).filter(|limits| *limits != "none");
    let Some(limits) = limits.map(str::to_owned) else { return };
    for table in file.tables.iter_mut().filter(|table| !table.published) {
        table.title.push_str(EMULATED);
        let note = format!(
            "Emulated: the bench kept the limits {limits} itself, in front of the storage that is named."
        );
        table.notes.insert(0, note);
    }
    file.plots.iter_mut().for_each(|plot| plot.title.push_str(EMULATED));
}

/// Print it and write its files. The exit code is 1 if the result must not be believed.
pub fn publish(file: &ResultFile, output: &OutputArgs) -> Result<ExitCode> {
    let written = output.out.as_deref().map_or(Ok(Vec::new()), |dir| write(file, dir));
    // Also if the files could not be written: it may have taken hours.
    say(&if output.json { json_file::write(file)? } else { markdown::render(file) })?;
    for path in written? {
        eprintln!("wrote {path}");
    }
    let invalid = file.findings.iter().any(|finding| finding.severity == Severity::Invalid);
    Ok(if invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A reader that stops early, as `head` or a pager, has had what it wanted.
fn say(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io("print", "the result", e)),
        _ => Ok(()),
    }
}

/// `EXPERIMENT.json`, `.md`, `.html` and one CSV for each table.
fn write(file: &ResultFile, dir: &Path) -> Result<Vec<String>> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e| Error::io("write", path, e)
    };
    std::fs::create_dir_all(dir).map_err(failed(dir))?;
    let name = |extension: &str| format!("{}.{extension}", file.experiment);
    let mut parts = vec![
        (name("json"), json_file::write(file)?),
        (name("md"), markdown::render(file)),
        (name("html"), html::render(file)),
    ];
    parts
        .extend(csv::files(file).into_iter().map(|(csv, text)| (format!("{}-{csv}", file.experiment), text)));
    let mut written = Vec::new();
    for (name, text) in parts {
        let path = dir.join(name);
        // Whole or not at all: another program may be waiting for it.
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, text).map_err(failed(&unfinished))?;
        std::fs::rename(&unfinished, &path).map_err(failed(&path))?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

fn read(path: &Path) -> Result<ResultFile> {
    let name = path.display().to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) => return refuse(format!("{name}: {e}; name a file that --out DIR has written")),
    };
    let mut bytes = Vec::new();
    // One byte more than a result may have: what is longer is refused for it.
    let read = file.take(json_file::BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| Error::io("read", &name, e))?;
    json_file::read(&name, &bytes)
}

pub fn show(path: &Path, output: &OutputArgs) -> Result<ExitCode> {
    publish(&read(path)?, output)
}

/// This process's command line, as users type it.
fn command() -> Vec<String> {
    let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    ["forebay", "bench"].map(str::to_owned).into_iter().chain(typed).collect()
}

/// The command line of the file, by this program; its result goes to a place of its own.
pub fn again(path: &Path, out: Option<&Path>, dry_run: bool) -> Result<ExitCode> {
    let file = read(path)?;
    let mut arguments = without_out(file.command.get(1..).unwrap_or_default());
    if let Some(out) = out {
        arguments.extend(["--out".to_owned(), out.to_string_lossy().into_owned()]);
    }
    eprintln!("forebay {}", arguments.join(" "));
    let Some(("bench", arguments)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    else {
        return refuse(format!("{}: it does not say which command made it", path.display()));
    };
    if dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let failed = |e| Error::io("start", "the run again", e);
    let status = Command::new("/proc/self/exe").args(arguments).status().map_err(failed)?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

fn without_out(arguments: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--out" {
            rest.next();
        } else if !argument.starts_with("--out=") {
            kept.push(argument.clone());
        }
    }
    kept
}

#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Before
    a: PathBuf,
    /// After
    b: PathBuf,
    /// Parameters that may differ: what the comparison is about
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    may_differ: Vec<String>,
    /// Smaller changes do not count, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    smallest_change: f64,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> std::result::Result<f64, String> {
    let number = text.trim_end_matches('%').parse().ok().filter(|p| (0.0..=100.0).contains(p));
    number.ok_or_else(|| format!("\"{text}\" is no percentage; write a number from 0 to 100"))
}

/// Exit codes: 0 same or better, 1 worse, 2 nothing can be said.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let config = compare::Config {
        may_differ: args.may_differ.iter().cloned().collect(),
        smallest_change: args.smallest_change / 100.0,
    };
    let outcome = compare::compare(&a, &b, &config);
    if args.json {
        let told = json!({
            "verdict": outcome.verdict.to_string(),
            "exit_code": outcome.verdict.exit_code(),
            "table": outcome.table,
        });
        say(&format!("{told:#}"))?;
    } else {
        if !outcome.table.rows.is_empty() {
            say(&markdown::table(&outcome.table))?;
        }
        say(&outcome.verdict.to_string())?;
    }
    Ok(ExitCode::from(outcome.verdict.exit_code()))
}
