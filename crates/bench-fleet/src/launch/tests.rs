use super::*;
use crate::options::LaunchArgs;

fn procs(procs: u32) -> LaunchArgs {
    LaunchArgs { procs: Some(procs), ..LaunchArgs::default() }
}

fn in_environment(variables: &[(&str, &str)]) -> FleetOptions {
    FleetOptions { environment: variables.into(), ..FleetOptions::default() }
}

fn detect_in(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
    detect(&in_environment(variables), "here")
}

const SRUN: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "17"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_PROCID", "1"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_STEP_NUM_NODES", "2"),
];

#[test]
fn without_a_launcher_a_process_is_alone() {
    assert_eq!(detect_in(&[("HOME", "/root")]).unwrap(), None);
}

/// Ranks on one machine meet near by, others in the working directory.
#[test]
fn a_launcher_is_found_by_its_variables() {
    let open_mpi = [
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ("PMIX_NAMESPACE", "19871.82593"),
    ];
    let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2")];
    let srun_and = |rank, size| [&SRUN[..], &[("PMI_RANK", rank), ("PMI_SIZE", size)]].concat();
    for (variables, rank_and_size, on_one_machine, job) in [
        (&open_mpi[..], (2, 4), true, "mpi1987182593-4"),
        (&hydra, (0, 4), false, "mpi-4"),
        (&SRUN, (1, 4), false, "slurm17x2-4"),
        // mpirun in a Slurm job counts, and srun with a PMI plugin is srun.
        (&srun_and("5", "8"), (5, 8), false, "mpi17-8"),
        (&srun_and("1", "4"), (1, 4), false, "slurm17x2-4"),
    ] {
        let launch = detect_in(variables).unwrap().unwrap();
        let Meeting::File { path, one_machine } = launch.meeting else { panic!("{launch:?}") };
        assert_eq!(((launch.rank, launch.size), one_machine), (rank_and_size, on_one_machine), "{job}");
        let dir = if one_machine { std::env::temp_dir() } else { ".".into() };
        assert!(path.starts_with(dir) && path.to_str().unwrap().ends_with(job), "{path:?}");
    }
}

#[test]
fn a_batch_script_without_srun_is_one_process() {
    let launch = detect_in(&[("SLURM_JOB_ID", "17"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]);
    assert_eq!(launch.unwrap(), None);
}

#[test]
fn our_own_variables_come_before_all() {
    let launch = detect_in(&[
        (RANK, "3"),
        (SIZE, "4"),
        (COORDINATOR, "a:1,b:2"),
        ("SLURM_PROCID", "0"),
        ("PMI_RANK", "0"),
        ("PMI_SIZE", "2"),
    ]);
    let meeting = Meeting::At(vec!["a:1".into(), "b:2".into()]);
    assert_eq!(launch.unwrap(), Some(Launch { rank: 3, size: 4, meeting }));
    assert!(detect_in(&[(RANK, "4"), (SIZE, "4"), (COORDINATOR, "a:1")]).is_err());
    assert!(detect_in(&[(RANK, "1"), (SIZE, "4")]).is_err());
    assert!(detect_in(&[(RANK, "x"), (SIZE, "4"), (COORDINATOR, "a:1")]).is_err());
}

#[test]
fn a_launcher_that_contradicts_itself_or_the_options_is_refused() {
    assert!(detect_in(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")]).is_err());
    assert!(detect_in(&[("PMI_RANK", "0"), ("PMI_SIZE", "400000")]).is_err());
    let mut options = FleetOptions { launch: procs(2), ..in_environment(&SRUN) };
    let error = detect(&options, "here").unwrap_err().to_string();
    assert!(error.contains("srun has started 4 ranks already"), "{error}");
    options.launch.hosts = Some("a".into());
    options.environment = Environment::default();
    assert!(detect(&options, "here").is_err());
}

#[test]
fn one_task_of_srun_may_start_processes_of_its_own() {
    let mut variables = SRUN;
    variables[2].1 = "0";
    variables[4].1 = "1";
    let options = FleetOptions { launch: procs(2), ..in_environment(&variables) };
    let meeting = Meeting::Starts(vec![RankStart { rank: 1, host: None }]);
    let launch = Launch { rank: 0, size: 2, meeting };
    assert_eq!(detect(&options, "here").unwrap(), Some(launch));
}

fn starts(hosts: &str) -> Result<Vec<(u32, Option<String>)>> {
    let options = FleetOptions {
        launch: LaunchArgs { hosts: Some(hosts.into()), ..LaunchArgs::default() },
        ..FleetOptions::default()
    };
    match detect(&options, "here")?.map(|launch| launch.meeting) {
        Some(Meeting::Starts(starts)) => Ok(starts.into_iter().map(|s| (s.rank, s.host)).collect()),
        None => Ok(Vec::new()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hosts_get_ranks_in_order_and_this_one_counts_rank_0() {
    let to = |name: &str| Some(name.to_owned());
    assert_eq!(starts("a,b:2").unwrap(), [(1, to("a")), (2, to("b")), (3, to("b"))]);
    assert_eq!(starts("here:2,b").unwrap(), [(1, None), (2, to("b"))]);
    assert_eq!(starts("b,localhost,here.example.org").unwrap(), [(1, to("b")), (2, None)]);
    assert_eq!(starts("here").unwrap(), []);
    assert_eq!(starts("me@n1,[fd00::1]:1").unwrap(), [(1, to("me@n1")), (2, to("fd00::1"))]);
}

#[test]
fn hosts_that_are_none_are_refused() {
    for wrong in
        ["", ",", "-oProxyCommand=x", "a:0", "a:x", "a b", "a;b", "[fd00::1", "[::1]x", "a:5000", "a$(b)"]
    {
        assert!(starts(wrong).is_err(), "{wrong:?}");
    }
    assert!(starts(&"a:4000,".repeat(3)).is_err());
    for wrong in [0, 5000] {
        let options = FleetOptions { launch: procs(wrong), ..FleetOptions::default() };
        assert!(detect(&options, "here").is_err());
    }
}

#[test]
fn a_word_survives_the_shell() {
    for word in ["plain", "two words", "it's", "$HOME `id` \\ \" ' * ;", ""] {
        let mut shell = std::process::Command::new("sh");
        let output = shell.arg("-c").arg(format!("printf %s {}", quote(word))).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }
}
