//! A workflow as tasks and what each waits for, and the scheduler that a batch system would be. Pure.

use serde::Deserialize;
use types::{Error, ErrorKind, Result};

const TASKS_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub name: String,
    /// Tasks that must have ended, by their place in the graph. All are earlier in it.
    pub after: Vec<usize>,
    /// Seconds without input and output, on a node of each site.
    pub compute: [f64; SITES],
    /// Files that it reads from beginning to end, and the bytes of each.
    pub files: u64,
    pub file_bytes: u64,
}

/// Near the storage, and far from it.
pub const SITES: usize = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub tasks: Vec<Task>,
}

/// The graph as a JSON file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    name: String,
    #[serde(default)]
    after: Vec<String>,
    near_seconds: f64,
    far_seconds: f64,
    #[serde(default)]
    files: u64,
    #[serde(default)]
    file_bytes: u64,
}

impl Graph {
    /// A JSON array of tasks; names refer to earlier ones.
    pub fn from_json(text: &str) -> Result<Graph> {
        let refuse = |why: String| Error::new(ErrorKind::Config, "workflow graph:", why);
        let typed: Vec<Typed> = serde_json::from_str(text).map_err(|e| {
            refuse(format!(
                r#"{e}; write [{{"name": "map", "after": [], "near_seconds": 60, "far_seconds": 50, "files": 4, "file_bytes": 1048576}}]"#
            ))
        })?;
        if typed.is_empty() || typed.len() > TASKS_MAX {
            return Err(refuse(format!("{} tasks; write from 1 to {TASKS_MAX}", typed.len())));
        }
        let mut tasks: Vec<Task> = Vec::with_capacity(typed.len());
        for one in typed {
            let time_ok = |t: f64| t.is_finite() && (0.0..1e7).contains(&t);
            if !time_ok(one.near_seconds) || !time_ok(one.far_seconds) {
                return Err(refuse(format!("{}: seconds must be from 0 to 10,000,000", one.name)));
            }
            if tasks.iter().any(|task| task.name == one.name) {
                return Err(refuse(format!("two tasks are named {}", one.name)));
            }
            let place = |name: &String| {
                let found = tasks.iter().position(|task| task.name == *name);
                found
                    .ok_or_else(|| refuse(format!("{} waits for {name}, which is no earlier task", one.name)))
            };
            let after = one.after.iter().map(place).collect::<Result<_>>()?;
            let compute = [one.near_seconds, one.far_seconds];
            tasks.push(Task { name: one.name, after, compute, files: one.files, file_bytes: one.file_bytes });
        }
        Ok(Graph { tasks })
    }

    /// Thirteen tasks in the shape of a tumour/normal pipeline (`caw.json`). What the study published is kept: the sum of the
    /// run times at the two sites, 1830 s and 1267 s, and its longest task, 693 s and 373 s. How the rest is
    /// shared out, and what each task reads, is ours.
    pub fn caw(scale: f64) -> Graph {
        let mut graph =
            Graph::from_json(include_str!("../../caw.json")).expect("the file was read by a test");
        graph.tasks.iter_mut().flat_map(|task| &mut task.compute).for_each(|seconds| *seconds *= scale);
        graph
    }

    pub fn files(&self) -> u64 {
        self.tasks.iter().map(|task| task.files).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.tasks.iter().map(|task| task.files.saturating_mul(task.file_bytes)).sum()
    }
}

/// Which task runs where next: ready tasks in the order of the graph, free nodes in the order of the partition, whole
/// nodes, as the study's batch system did.
pub struct TaskSchedule<'a> {
    graph: &'a Graph,
    state: Vec<State>,
    free: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Waiting,
    Running,
    Done,
}

impl TaskSchedule<'_> {
    pub fn new(graph: &Graph, nodes: usize) -> TaskSchedule<'_> {
        TaskSchedule { graph, state: vec![State::Waiting; graph.tasks.len()], free: vec![true; nodes] }
    }

    /// The next task and its node, if a task is ready and a node is free. It runs from now on.
    pub fn start(&mut self) -> Option<(usize, usize)> {
        let node = self.free.iter().position(|free| *free)?;
        let ready = |task: usize| {
            let done = |after: &usize| self.state[*after] == State::Done;
            self.state[task] == State::Waiting && self.graph.tasks[task].after.iter().all(done)
        };
        let task = (0..self.state.len()).find(|task| ready(*task))?;
        self.free[node] = false;
        self.state[task] = State::Running;
        Some((task, node))
    }

    pub fn end(&mut self, task: usize, node: usize) {
        self.state[task] = State::Done;
        self.free[node] = true;
    }

    pub fn is_done(&self) -> bool {
        self.state.iter().all(|state| *state == State::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The makespan if tasks took just their compute time.
    fn makespan(graph: &Graph, sites: &[usize]) -> f64 {
        let mut schedule = TaskSchedule::new(graph, sites.len());
        let (mut now, mut running) = (0.0, Vec::new());
        while !schedule.is_done() {
            while let Some((task, node)) = schedule.start() {
                running.push((now + graph.tasks[task].compute[sites[node]], task, node));
            }
            running.sort_by(|a: &(f64, usize, usize), b| b.0.total_cmp(&a.0));
            let (at, task, node) = running.pop().expect("something runs until all is done");
            now = at;
            schedule.end(task, node);
        }
        now
    }

    #[test]
    fn the_default_graph_keeps_what_was_published() {
        let graph = Graph::caw(1.0);
        for (site, sum) in [(0, 1830.0), (1, 1267.0)] {
            let total: f64 = graph.tasks.iter().map(|task| task.compute[site]).sum();
            assert!((total - sum).abs() < 1e-6, "{total}");
        }
        assert_eq!(graph.tasks.len(), 13);
        let (near, far) = (makespan(&graph, &[0, 0, 0]), makespan(&graph, &[1, 1, 1]));
        assert!(near > far && near < 1830.0 && far > 373.0, "{near} {far}");
        assert!((makespan(&graph, &[0]) - 1830.0).abs() < 1e-6, "one node does one after the other");
    }

    #[test]
    fn a_task_starts_when_all_it_waits_for_has_ended() {
        let graph = Graph::from_json(
            r#"[{"name": "a", "near_seconds": 1, "far_seconds": 1}, {"name": "b", "near_seconds": 1, "far_seconds": 1},
                {"name": "c", "after": ["a", "b"], "near_seconds": 1, "far_seconds": 1, "files": 2, "file_bytes": 5}]"#,
        )
        .expect("a graph");
        assert_eq!((graph.files(), graph.bytes()), (2, 10));
        let mut schedule = TaskSchedule::new(&graph, 3);
        assert_eq!(
            (schedule.start(), schedule.start(), schedule.start()),
            (Some((0, 0)), Some((1, 1)), None)
        );
        schedule.end(1, 1);
        assert_eq!(schedule.start(), None, "a still runs");
        schedule.end(0, 0);
        assert_eq!(schedule.start(), Some((2, 0)));
        schedule.end(2, 0);
        assert!(schedule.is_done());
    }

    #[test]
    fn a_wrong_graph_is_told_in_one_line() {
        let one = r#"{"name": "a", "near_seconds": 1, "far_seconds": 1}"#;
        for (text, said) in [
            ("[]".to_owned(), "from 1"),
            ("{".to_owned(), "near_seconds"),
            (format!("[{one}, {one}]"), "two tasks"),
            (
                r#"[{"name": "a", "after": ["b"], "near_seconds": 1, "far_seconds": 1}]"#.to_owned(),
                "no earlier task",
            ),
            (r#"[{"name": "a", "near_seconds": -1, "far_seconds": 1}]"#.to_owned(), "from 0"),
        ] {
            let error = Graph::from_json(&text).expect_err("refused").to_string();
            assert!(error.contains(said) && error.lines().count() == 1, "{error}");
        }
    }
}
